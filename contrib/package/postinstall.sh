#!/bin/sh
# Makes the user rdsd and the folder /run/rdsd. An upgrade then has the new program take over from
# the running one.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers rdsd.conf
elif ! getent passwd rdsd >/dev/null; then
	useradd --system --user-group --home-dir /run/rdsd --no-create-home --shell /usr/sbin/nologin --comment "Reliable Datagram Sockets" rdsd
fi
if command -v systemd-tmpfiles >/dev/null; then systemd-tmpfiles --create rdsd.conf || true; fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# A running daemon that cannot be replaced is restarted: one of a version before planned
	# restarts, or with which the new one has no version in common. Neither command starts a
	# service that does not run. After a first installation the administrator does so:
	# systemctl enable --now rdsd.
	systemctl start rdsd-upgrade.service 2>/dev/null || systemctl try-restart rdsd.service
fi
