#!/bin/sh
# Runs a shell command under the preload library in a network of its own, where a daemon has 127.0.0.1: for programs
# that know no other address. Arguments: a folder of its own, the library, rdsd, the command.
# To be run as root in new network and process namespaces.
set -eu
dir=$1 library=$2 rdsd=$3
ip link set lo up
env -i "$rdsd" -socket "$dir/socket" -listen 127.0.0.1 >"$dir/log" 2>&1 &
until grep -qs msg=serving "$dir/log"; do
	kill -0 $! || { cat "$dir/log"; exit 1; }
	sleep 0.05
done
LD_PRELOAD=$library RDSD_SOCKET=$dir/socket exec sh -c "$4"
