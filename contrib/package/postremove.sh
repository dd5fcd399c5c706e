#!/bin/sh
# The user stays: its uid may own files. A purge removes it and what the
# administrator added to the configuration's folder.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ "$1" = purge ]; then
	rm -rf /etc/rdsd /run/rdsd
	if getent passwd rdsd >/dev/null; then userdel rdsd || true; fi
fi
