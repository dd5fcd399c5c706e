#!/usr/bin/env bash
# Makes, in the folder that the first argument names, what virtual machines boot:
#   vmlinuz    Debian's kernel: the newest of the series in the second argument, such as
#              6.12, if Debian has it, or that of linux-image-amd64
#   initrd.gz  the RAM disk of test/vmlab's machine: busybox, kernel modules,
#              rping, perftest, rdma, ss, nft, guest.c and siwfuzz
#   lab.gz     the RAM disk of a lab host: busybox, kernel modules, lab-init
#   root       the kernel's modules, and siw. Debian's kernel has no siw, so
#              this script builds it from Debian's kernel source package.
# Kernel and siw are kept until Debian has a newer kernel. The RAM disks are made
# anew each time. The status is 75 if this machine is not amd64, or if Debian's
# archive does not have what is needed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../../scripts/lib.sh"
[ $# = 1 ] || [ $# = 2 ] || die "usage: setup.sh FOLDER [SERIES]"
image=linux-image-${2:+$2-}amd64
mkdir -p "$1"
out=$(cd "$1" && pwd)
PATH=$PATH:/usr/sbin:/sbin # modprobe and depmod, which need no privilege here
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# lacking REASON ends the script with status 75.
lacking() {
	echo "rdsd: $*" >&2
	exit 75
}

[ "$(uname -m)" = x86_64 ] || lacking "the virtual machines run Debian's amd64 kernel, and this machine is $(uname -m)"

# The programs that are needed, and the packages that have them and the headers.
programs="qemu-system-x86_64 busybox cpio gzip xz make gcc modprobe depmod rping rdma dpkg apt-get ib_write_bw ss nft tshark ping nbd-client mkfs.ext4 mdadm"
packages="qemu-system-x86 busybox-static cpio gzip xz-utils make gcc libc6-dev kmod rdmacm-utils perftest nftables tshark iproute2
	rdma-core ibverbs-providers libibverbs-dev librdmacm-dev iputils-ping nbd-client e2fsprogs mdadm"

need_programs() {
	local p
	for p in $programs; do
		command -v "$p" >/dev/null || { need_packages $packages || lacking "no program $p"; return; }
	done
	[ -e /usr/include/rdma/rdma_cma.h ] || need_packages $packages || lacking "no headers of librdmacm (package librdmacm-dev)"
}

# kernel fetches Debian's kernel image and builds siw for it.
kernel() {
	local release
	if [ ! -e "$out/release" ] && [ "$(id -u)" -eq 0 ]; then apt-get update -q >/dev/null || true; fi
	release=$(apt-cache depends "$image" 2>/dev/null | sed -n 's/.*Depends: linux-image-\([0-9][^ ]*\)$/\1/p' | head -n1)
	[ -n "$release" ] || lacking "no $image in apt's lists (this needs Debian on amd64; run apt-get update)"
	[ "$(cat "$out/release" 2>/dev/null)" = "$release" ] && return
	[ -d "/usr/src/linux-headers-$release" ] || need_packages "linux-headers-$release" || lacking "no headers of kernel $release"
	echo "vmlab: fetching kernel $release and building siw for it"
	(cd "$tmp" && { apt-get download -qq "linux-image-$release-unsigned" || apt-get download -qq "linux-image-$release"; } 2>/dev/null &&
		apt-get download -qq "linux-source-${release%.*}" 2>/dev/null) ||
		lacking "apt-get download of linux-image-$release or linux-source-${release%.*} failed (are apt's lists old? run apt-get update)"
	rm -rf "$out/root" "$out/release"
	dpkg -x "$tmp"/linux-image-*.deb "$out/root"
	dpkg -x "$tmp"/linux-source-*.deb "$tmp/src"
	tar -xf "$tmp"/src/usr/src/linux-source-*.tar.xz -C "$tmp" --wildcards '*/drivers/infiniband/sw/siw/*' --strip-components=4
	make -s -C "/usr/src/linux-headers-$release" M="$tmp/siw" CONFIG_RDMA_SIW=m modules >"$out/siw.log" 2>&1 ||
		die "siw did not build, see $out/siw.log"
	install -D -m 644 "$tmp/siw/siw.ko" "$out/root/lib/modules/$release/extra/siw.ko"
	depmod -b "$out/root" "$release"
	cp "$out/root/boot/vmlinuz-$release" "$out/vmlinuz"
	echo "$release" >"$out/release"
}

# with_libraries FILE... copies programs and the shared objects that they load.
with_libraries() {
	local f
	for f in "$@"; do
		install -D "$f" "$tmp/initrd/$f"
		ldd "$f" | grep -o '/[^ ]*' | while read -r lib; do
			[ -e "$tmp/initrd/$lib" ] || install -D "$lib" "$tmp/initrd/$lib"
		done
	done
}

# modules FOLDER MODULE... copies modules, and the modules that these need, and
# lists them in the order in which they are loaded.
modules() {
	local m release to=$1
	shift
	release=$(cat "$out/release")
	for m in "$@"; do
		modprobe -d "$out/root" -S "$release" --show-depends "$m" | awk '$1 == "insmod" { print $2 }'
	done | awk '!seen[$0]++' | while read -r f; do
		cp "$f" "$to/modules/"
		echo "/modules/$(basename "$f")" >>"$to/modules/order"
	done
}

initrd() {
	local lib
	mkdir -p "$tmp"/initrd/{usr/{bin,sbin,lib,lib64},etc,proc,sys,dev,tmp,modules}
	ln -s usr/{bin,sbin,lib,lib64} "$tmp/initrd/" # as on Debian, so that libraries are found under both names
	gcc -O2 -Wall -Wextra -Werror -o "$tmp/initrd/bin/guest" "$here/guest.c" -lrdmacm -libverbs
	gcc -O2 -Wall -Wextra -Werror -o "$tmp/initrd/bin/siwfuzz" "$here/../siwfuzz/siwfuzz.c" -lrdmacm -libverbs
	lib=$(ldd "$tmp/initrd/bin/guest" | grep -o '/[^ ]*libibverbs[^ ]*')
	with_libraries $(command -v rping rdma ss nft ib_write_bw ib_read_bw ib_send_bw) "$(dirname "$lib")"/libibverbs/libsiw-*.so
	ldd "$tmp/initrd/bin/guest" | grep -o '/[^ ]*' | while read -r f; do install -D "$f" "$tmp/initrd/$f"; done
	# rping's pthread_exit loads this library by name, so ldd does not show it.
	install -D "$(gcc -print-file-name=libgcc_s.so.1)" "$tmp/initrd/lib/x86_64-linux-gnu/libgcc_s.so.1"
	install -D -m 644 /etc/libibverbs.d/siw.driver "$tmp/initrd/etc/libibverbs.d/siw.driver"
	cp "$(command -v busybox)" "$tmp/initrd/bin/busybox"
	ln -s busybox "$tmp/initrd/bin/sh"
	install -m 755 "$here/init" "$tmp/initrd/init"
	modules "$tmp/initrd" virtio_pci virtio_net crc32c_generic siw rdma_ucm ib_uverbs tcp_diag nf_tables nft_reject_ipv4
	pack initrd
}

lab() {
	local b
	mkdir -p "$tmp"/lab/{bin,modules,proc,sys,dev,lower,upper,root}
	cp "$(command -v busybox)" "$tmp/lab/bin/busybox"
	for b in sh mount mkdir cat insmod switch_root; do ln -s busybox "$tmp/lab/bin/$b"; done
	install -m 755 "$here/lab-init" "$tmp/lab/init"
	modules "$tmp/lab" virtio_pci 9pnet_virtio 9p overlay
	pack lab
}

# pack NAME makes a RAM disk of a folder. A machine that reads the old RAM disk
# at that moment still has all of it.
pack() {
	(cd "$tmp/$1" && find . | cpio -o -H newc --quiet | gzip -1) >"$out/$1.gz.new"
	mv "$out/$1.gz.new" "$out/$1.gz"
}

need_programs
kernel
initrd
lab
