#!/bin/sh
# Makes the user rdsd and the folder /run/rdsd. An upgrade then restarts the service.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers rdsd.conf
elif ! getent passwd rdsd >/dev/null; then
	useradd --system --user-group --home-dir /run/rdsd --no-create-home --shell /usr/sbin/nologin --comment "Reliable Datagram Sockets" rdsd
fi
if command -v systemd-tmpfiles >/dev/null; then systemd-tmpfiles --create rdsd.conf || true; fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# try-restart restarts only a service that runs. After a first installation the
	# administrator starts it: systemctl enable --now rdsd.
	systemctl try-restart rdsd.service
fi
