#!/bin/sh
# The user stays, because its uid may own files. A purge removes the user, and all of
# /etc/rdsd with the files that the administrator added.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ "$1" = purge ]; then
	rm -rf /etc/rdsd /run/rdsd
	if getent passwd rdsd >/dev/null; then userdel rdsd || true; fi
fi
