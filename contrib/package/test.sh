#!/usr/bin/env bash
# Installs the Debian package into a fresh root folder, runs the daemon there,
# and removes it again: test.sh FILE.deb. Needs root; installs debootstrap.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. scripts/lib.sh
[ $# = 1 ] && [ -f "$1" ] || die "usage: test.sh FILE.deb"
[ "$(id -u)" -eq 0 ] || die "a root folder of its own takes root"
command -v debootstrap >/dev/null || need_packages debootstrap
PATH=$PATH:/usr/sbin:/sbin
root=$(mktemp -d)
chmod 755 "$root" # its users look from here
trap 'rm -rf "$root"' EXIT
. /etc/os-release
mirror=$(sed -nE 's/^(deb|URIs:) +(\[[^]]*\] +)?(https?:[^ ]+).*/\3/p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n1 || true)
debootstrap --variant=minbase "$VERSION_CODENAME" "$root" ${mirror:+"$mirror"} >"$root.log" 2>&1 || { tail "$root.log" >&2; die "debootstrap failed"; }
rm -f "$root.log"
say() { echo "package: $*"; }
in_root() { chroot "$root" "$@"; }
cp "$1" "$root/rdsd.deb"
in_root dpkg -i /rdsd.deb >/dev/null
in_root getent passwd rdsd >/dev/null || die "no user rdsd"
in_root rdsctl config validate /etc/rdsd/rdsd.toml >/dev/null || die "the configuration delivered is not valid"
in_root rdsd -version
say "installed, with user and a valid configuration"

in_root install -d -o rdsd -g rdsd /run/rdsd
chroot "$root" setpriv --reuid rdsd --regid rdsd --clear-groups rdsd -config /etc/rdsd/rdsd.toml -socket /run/rdsd/rdsd.sock -listen 127.77.0.1 &
daemon=$!
for _ in $(seq 100); do in_root rdsctl status >/dev/null 2>&1 && break; sleep 0.1; done
in_root rdsctl status | sed -n 1,3p
kill $daemon
wait $daemon || die "the daemon ended with status $?"
[ ! -e "$root/run/rdsd/rdsd.sock" ] || die "its socket stayed"
say "ran as its user"

echo 'port = 18635' >"$root/etc/rdsd/rdsd.toml.d/mine.toml"
sed -i 's/^#log.level.*/log.level = "warn"/' "$root/etc/rdsd/rdsd.toml"
in_root dpkg -i /rdsd.deb >/dev/null
grep -q '^log.level = "warn"' "$root/etc/rdsd/rdsd.toml" || die "an upgrade lost what the administrator changed"
in_root dpkg -r rdsd >/dev/null
[ ! -e "$root/usr/bin/rdsd" ] && [ -e "$root/etc/rdsd/rdsd.toml" ] || die "removed too little or too much"
in_root dpkg -P rdsd >/dev/null
[ ! -e "$root/etc/rdsd" ] || die "a purge left /etc/rdsd"
in_root getent passwd rdsd >/dev/null && die "a purge left the user"
in_root find / -xdev -path '*rdsd*' -not -path '/proc/*' -not -path /rdsd.deb -not -path '/var/log/*' | grep . && die "these files stayed"
say "upgraded, removed and purged; nothing stayed"
