#!/bin/sh
# Stops the service when the package goes for good, but not for an upgrade. Debian
# passes "remove" or "upgrade", rpm the number of versions that stay installed.
set -e
case "$1" in
remove | 0) if [ -d /run/systemd/system ]; then systemctl disable --now rdsd.socket rdsd.service; fi ;;
esac
