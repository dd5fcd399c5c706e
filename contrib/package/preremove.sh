#!/bin/sh
# Debian says "remove" and "upgrade", rpm the number of packages left.
set -e
case "$1" in
remove | 0) if [ -d /run/systemd/system ]; then systemctl disable --now rdsd.socket rdsd.service; fi ;;
esac
