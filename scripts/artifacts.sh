#!/usr/bin/env bash
# Makes all files of a release out of the tree that it belongs to, and replaces FOLDER by them:
#   scripts/artifacts.sh FOLDER VERSION
# For each architecture they are debs and rpms, the wheel of package rds for Python, an archive with the static programs, and the
# container image as an OCI archive; for all together the bill of materials (CycloneDX JSON)
# and SHA256SUMS. ARCHS names the architectures ("amd64 arm64").
#
# The same commit gives the same bytes in any folder, with the same Go and the same Debian
# release. Every time in the files is SOURCE_DATE_EPOCH, which is the commit's if it is not set.
# Root installs what is missing; for everybody else the error has the apt-get line.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_go
cd "$ROOT"
[ $# -eq 2 ] || die "usage: artifacts.sh FOLDER VERSION"
out=$1 version=$2
host=$(go env GOHOSTARCH)
archs=${ARCHS:-amd64 arm64}
[[ " $archs " == *" $host "* ]] || die "ARCHS is \"$archs\": add $host, whose rdsctl writes the manual pages"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null)} ||
	die "there is no commit to take the time from: set SOURCE_DATE_EPOCH to the release's, in seconds"
[[ $SOURCE_DATE_EPOCH =~ ^[0-9]+$ ]] || die "SOURCE_DATE_EPOCH is $SOURCE_DATE_EPOCH, not a number of seconds: set it to the commit's (git log -1 --format=%ct)"
# What the environment could change in the files.
umask 022
export SOURCE_DATE_EPOCH TZ=UTC LC_ALL=C GOFLAGS= CGO_ENABLED=0 GOAMD64=v1 GOARM64=v8.0
unset GOOS GOARCH GOEXPERIMENT CFLAGS CPPFLAGS LDFLAGS MAKEFLAGS

# compiler ARCH sets cc and ar, and installs them if they are missing.
compiler() {
	cc=gcc ar=ar
	local triple debian=$1
	case $1 in
	amd64) triple=x86_64-linux-gnu ;;
	arm64) triple=aarch64-linux-gnu ;;
	*) die "ARCHS is \"$archs\": there are releases for amd64 and arm64 only" ;;
	esac
	[ "$1" = "$host" ] || cc=$triple-gcc ar=$triple-ar
	echo 'int main(void) { return 0; }' | $cc -x c -include stdlib.h -o /dev/null - 2>/dev/null && return
	if [ "$1" = "$host" ]; then need_packages gcc libc6-dev; else need_packages "gcc-${triple//_/-}" "libc6-dev-$debian-cross"; fi
}

# All tools first: a missing one shows before anything is built.
command -v make >/dev/null || need_packages make
command -v umoci >/dev/null || need_packages umoci
for arch in $archs; do compiler "$arch"; done
need_python
need_fabric

build=bin/build
rm -rf "$build" "$out"
mkdir -p "$out"
for arch in $archs; do
	compiler "$arch"
	GOARCH=$arch make -s BIN="$build/$arch" STRIP='-s -w' VERSION="$version" CC="$cc" AR="$ar" programs librds preload python fabric
done
programs=()
for arch in $archs; do
	GOARCH=$arch BUILD=$build/$arch RDSCTL=$build/$host/rdsctl contrib/package/build.sh "$out" "$version"
	contrib/container/image.sh "$build/$arch" "$arch" "${version#v}" "$out/rdsd-${version#v}-$arch.oci.tar"
	cp "$build/$arch"/python/dist/*.whl "$out/"
	name=rdsd-${version#v}-linux-$arch
	mkdir "$build/$name"
	cp "$build/$arch/rdsd" "$build/$arch/rdsctl" LICENSE README.md CHANGELOG.md "$build/$name/"
	tarball "$build" "$name" | gzip -n9 >"$out/$name.tar.gz"
	programs+=("$build/$arch/rdsd" "$build/$arch/rdsctl")
done
go run ./internal/sbom "$version" "${programs[@]}" >"$out/rdsd-${version#v}.cdx.json"
cd "$out"
sums=$(sha256sum -- *)
echo "$sums" >SHA256SUMS
