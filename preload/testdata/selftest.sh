#!/bin/sh
# Runs the kernel's self-test net/rds/test.py, unmodified, under the preload library, with a daemon in each of the
# network namespaces that it makes. Arguments: a folder of its own, the library, rdsd, test.py and its arguments.
# To be run as root in new mount, network and process namespaces, so that what the test adds and ends is its own.
#
# The test gives no moment between making the namespaces and making sockets there but its ping: the daemons start
# there. In /usr/sbin, where the test looks for them: tcpdump, which Debian has elsewhere; sysctl with -e, because no
# net.rds settings exist without the module; and where the kernel has no netem, a tc that does nothing.
set -eu
dir=$1 library=$2 rdsd=$3
shift 3
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/rdsd "$dir/bin"
ip link set lo up

cat >"$dir/bin/ping" <<END
#!/bin/sh
i=1
for ns in net0 net1; do
	env -i ip netns exec \$ns $rdsd -socket /run/rdsd/%n.sock -listen 10.0.0.\$i -peers-allow 10.0.0.0/24 -tls-mode off >$dir/\$ns.log 2>&1 &
	until grep -qs msg=serving $dir/\$ns.log; do kill -0 \$! || exit 1; sleep 0.05; done
	i=2
done
END
chmod 755 "$dir/bin/ping"
cp -a /usr/sbin "$dir/sbin"
mv "$dir/sbin/sysctl" "$dir/sysctl"
printf '#!/bin/sh\nexec %s -e "$@"\n' "$dir/sysctl" >"$dir/sbin/sysctl"
[ -e "$dir/sbin/tcpdump" ] || ln -s "$(command -v tcpdump)" "$dir/sbin/tcpdump"
if tc qdisc add dev lo root netem loss 0% 2>/dev/null; then
	tc qdisc del dev lo root
else
	echo "selftest.sh: this kernel has no netem: no loss"
	rm "$dir/sbin/tc"
	printf '#!/bin/sh\n' >"$dir/sbin/tc"
fi
chmod 755 "$dir/sbin/sysctl" "$dir/sbin/tc"
mount --bind "$dir/sbin" /usr/sbin
LD_PRELOAD=$library RDSD_SOCKET=/run/rdsd/%n.sock PATH=$dir/bin:$PATH exec python3 "$@"
