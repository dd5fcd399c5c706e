#!/usr/bin/env bash
# Installs the deb, and then the rpm, into a fresh root folder, runs the daemon there,
# upgrades and removes the package. With each it installs the libraries that lie in the
# same folder (librds, librds-dev, librdsd-preload) and builds and runs C programs:
#   contrib/package/test.sh FILE.deb FILE.rpm
# It needs root, and installs debootstrap and rpm if they are missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. scripts/lib.sh
[ $# = 2 ] && [ -f "$1" ] && [ -f "$2" ] || die "usage: test.sh FILE.deb FILE.rpm"
[ "$(id -u)" -eq 0 ] || die "chroot needs root: run make package-test as root"
need_go
command -v debootstrap >/dev/null || need_packages debootstrap
command -v rpm >/dev/null || need_packages rpm
PATH=$PATH:/usr/sbin:/sbin
say() { echo "package: $*"; }
root=$(mktemp -d)
newer=$(mktemp -d)
chmod 755 "$root" # the user rdsd must get into it
daemon=
end() {
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
	! mountpoint -q "$root/proc" || umount -l "$root/proc" || return # rather files that stay than those of /proc that go
	rm -rf "$root" "$newer"
}
trap end EXIT
# The upgrade installs the same programs under a higher version.
contrib/package/build.sh "$newer" v999.0.0 >/dev/null
. /etc/os-release
mirror=$(sed -nE 's/^(deb|URIs:) +(\[[^]]*\] +)?(https?:[^ ]+).*/\3/p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n1 || true)
debootstrap --variant=minbase --include=gcc,libc6-dev,pkgconf,python3-cffi-backend,libfabric-bin "$VERSION_CODENAME" "$root" ${mirror:+"$mirror"} >"$root.log" 2>&1 || { tail "$root.log" >&2; die "debootstrap failed"; }
rm -f "$root.log"
mount -t proc proc "$root/proc" # the daemon gives out memory that may only be read, through /proc
in_root() { chroot "$root" "$@"; }
. contrib/package/testlib.sh

# installed FORMAT checks what an installation must leave. It is the same for both formats.
installed() {
	in_root getent passwd rdsd >/dev/null || die "$1: no user rdsd"
	in_root rdsctl config validate /etc/rdsd/rdsd.toml >/dev/null || die "$1: the packaged configuration is not valid"
	in_root rdsd -version
	local f
	for f in man/man1/rdsctl.1.gz man/man5/rdsd.toml.5.gz man/man8/rdsd.8.gz; do
		gzip -dc "$root/usr/share/$f" | grep -q '^\.TH' || die "$1: /usr/share/$f is no manual"
	done
	for f in bash-completion/completions/rdsctl zsh/site-functions/_rdsctl fish/vendor_completions.d/rdsctl.fish; do
		grep -q __complete "$root/usr/share/$f" || die "$1: /usr/share/$f is no completion"
	done
	for f in rdsd.service rdsd.socket rdsd-upgrade.service; do [ -s "$root/usr/lib/systemd/system/$f" ] || die "$1: no $f"; done
	say "$1: installed, with user, manuals, completions and a valid configuration"
}

# runs FORMAT starts the daemon as the user rdsd, asks for its status, has C programs use it
# and stops it.
runs() {
	in_root install -d -o rdsd -g rdsd /run/rdsd
	chroot "$root" setpriv --reuid rdsd --regid rdsd --clear-groups rdsd -config /etc/rdsd/rdsd.toml -socket /run/rdsd/rdsd.sock -listen 127.77.0.1 &
	daemon=$!
	for _ in $(seq 100); do in_root rdsctl status >/dev/null 2>&1 && break; sleep 0.1; done
	in_root rdsctl status | sed -n 1,3p
	libraries_run "$1"
	kill $daemon
	wait $daemon || die "$1: the daemon ended with status $?"
	daemon=
	[ -z "$(ls -A "$root/run/rdsd")" ] || die "$1: the daemon left $(ls -A "$root/run/rdsd")"
	say "$1: the daemon ran as the user rdsd"
}

# change FORMAT changes the configuration as an administrator does. changed WHEN checks
# that the changes are still there.
change() {
	echo 'port = 18635' >"$root/etc/rdsd/rdsd.toml.d/mine.toml"
	sed -i 's/^#log.level.*/log.level = "warn"/' "$root/etc/rdsd/rdsd.toml"
	changed "$1: before"
}
changed() {
	grep -q '^log.level = "warn"' "$root/etc/rdsd/rdsd.toml" && [ -e "$root/etc/rdsd/rdsd.toml.d/mine.toml" ] || die "$1: lost what the administrator changed"
}

# left lists the files of the package that are still there.
left() { in_root find / -xdev -path '*rdsd*' -not -path '/proc/*' -not -path '/rdsd.*' -not -path '/var/log/*'; }

cp "$1" "$root/rdsd.deb"
in_root dpkg -i /rdsd.deb >/dev/null
installed deb
libraries_deb "$(dirname "$1")" "$newer"
runs deb
libraries_gone deb
change deb
cp "$newer"/rdsd_*.deb "$root/rdsd.deb"
in_root dpkg -i /rdsd.deb >/dev/null
in_root dpkg-query -W -f '${Version}' rdsd | grep -q '^999' || die "deb: not upgraded"
changed "deb: the upgrade"
in_root dpkg -r rdsd >/dev/null
[ ! -e "$root/usr/bin/rdsd" ] || die "deb: the removal left /usr/bin/rdsd"
changed "deb: the removal"
in_root dpkg -P rdsd >/dev/null
[ ! -e "$root/etc/rdsd" ] || die "deb: a purge left /etc/rdsd"
in_root getent passwd rdsd >/dev/null && die "deb: a purge left the user"
left | grep . && die "deb: these files stayed"
say "deb: upgraded, removed and purged; nothing stayed"

# The host's rpm installs into the root, and the package's scripts run there. This rpm
# knows no Debian packages, so the loop checks the files that the package requires.
rpm="rpm --force-debian --root $root --dbpath /var/lib/rpm"
for need in $(rpm -qp --requires "$2" | grep ^/); do [ -e "$root$need" ] || die "rpm: it requires $need, which a minimal Debian does not have"; done
rpm -K "$2" >/dev/null || die "rpm: bad digests"
$rpm -i --nodeps "$2"
installed rpm
$rpm -V --nodeps rdsd || die "rpm: not as packaged"
libraries_rpm "$(dirname "$2")" "$newer"
runs rpm
libraries_gone rpm
change rpm
$rpm -U --nodeps "$newer"/rdsd-*.rpm
$rpm -q rdsd | grep -q '^rdsd-999' || die "rpm: not upgraded"
[ "$($rpm -q rdsd | wc -l)" = 1 ] || die "rpm: two versions are installed"
[ -e "$root/usr/bin/rdsd" ] || die "rpm: the upgrade removed /usr/bin/rdsd"
changed "rpm: the upgrade"
$rpm -e --nodeps rdsd 2>/dev/null
[ ! -e "$root/usr/bin/rdsd" ] || die "rpm: the removal left /usr/bin/rdsd"
in_root getent passwd rdsd >/dev/null || die "rpm: the removal deleted the user rdsd"
# rpm keeps a changed configuration file as .rpmsave.
grep -q '^log.level = "warn"' "$root/etc/rdsd/rdsd.toml.rpmsave" || die "rpm: lost what the administrator changed"
rm -rf "$root/etc/rdsd" "$root/run/rdsd"
rm -rf "$root/var/lib/rpm"
left | grep . && die "rpm: these files stayed"
say "rpm: upgraded and removed; the user and the changed configuration stayed"
