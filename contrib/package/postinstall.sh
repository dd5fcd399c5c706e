#!/bin/sh
# The user and the folder; then the service, where systemd runs.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers rdsd.conf
elif ! getent passwd rdsd >/dev/null; then
	useradd --system --user-group --home-dir /run/rdsd --no-create-home --shell /usr/sbin/nologin --comment "Reliable Datagram Sockets" rdsd
fi
if command -v systemd-tmpfiles >/dev/null; then systemd-tmpfiles --create rdsd.conf || true; fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# An upgrade restarts what runs; a first installation leaves that to the
	# administrator: systemctl enable --now rdsd.
	systemctl try-restart rdsd.service
fi
