# First process of a lab host after lab-init. It sets the network up and then
# carries out the test's commands, which come over a virtio port. "run ID" starts
# the script /xfer/ID.sh; when the script ends, the answer is "done ID STATUS".
# "kill ID" kills the script's processes. "halt" ends the host.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
for w in $(</proc/cmdline); do
	case $w in
	lab_host=*) export HOST=${w#*=} ;;
	lab_hosts=*) export HOSTS=${w#*=} ;;
	esac
done
HOSTS=${HOSTS//,/ }
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
mount -t debugfs debugfs /sys/kernel/debug
hostname "host$HOST"
ulimit -l unlimited
export XDG_RUNTIME_DIR=/run
case $HOST in
A) n=1 peer=2 ;;
B) n=2 peer=1 ;;
esac
export ME=10.9.0.$n PEER=10.9.0.$peer ME6=fd00:9::$n PEER6=fd00:9::$peer
modprobe -a virtio_console virtio_net
ip link set lo up
[ -e /sys/class/net/eth0 ] || { modprobe dummy numdummies=0 && ip link add eth0 type dummy; } # a lab with one host
ip link set eth0 mtu 4200
ip addr add "$ME/24" dev eth0
ip addr add "$ME6/64" dev eth0 nodad
ip link set eth0 up

# lab_load MODULE... loads kernel modules.
lab_load() {
	local m
	for m in "$@"; do
		modprobe "$m" || { echo "lab_load: no module $m" >&2; return 1; }
	done
}

# lab_sync NAME waits until every host has called it. A name can be used once.
lab_sync() {
	local h
	: >"/xfer/sync.$1.$HOST"
	for h in $HOSTS; do
		until [ -e "/xfer/sync.$1.$h" ]; do sleep 0.1; done
	done
}

# lab_wait SECONDS COMMAND... repeats the command until it succeeds. It fails
# after so many seconds.
lab_wait() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$end" ] || { echo "lab_wait: timed out: $*" >&2; return 1; }
		sleep 0.1
	done
}
export -f lab_load lab_sync lab_wait

cd /tmp
until port=$(compgen -G '/dev/vport*p1'); do sleep 0.05; done
exec 3<>"$port"
echo ready >&3
while read -r verb id <&3; do
	case $verb in
	run)
		(
			setsid bash "/xfer/$id.sh" >"/xfer/$id.out" 2>&1 3>&- </dev/null &
			echo $! >"/run/lab.$id"
			wait $!
			echo "done $id $?" >&3
		) &
		;;
	kill) [ -e "/run/lab.$id" ] && kill -KILL -- "-$(<"/run/lab.$id")" ;;
	halt) break ;;
	esac
done
echo o >/proc/sysrq-trigger
sleep 60
