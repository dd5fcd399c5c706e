#!/usr/bin/env bash
# Builds debs and rpms from the programs and libraries in bin/ and writes them to FOLDER:
#   contrib/package/build.sh FOLDER VERSION
# For another architecture (GOARCH) BUILD is the folder with its programs and libraries, and
# RDSCTL is an rdsctl that runs here. With SOURCE_DATE_EPOCH, which is that of the commit if
# it is not set, the same input gives the same packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. scripts/lib.sh
[ $# = 2 ] || die "usage: build.sh FOLDER VERSION"
out=$1
# v0.1.0 becomes 0.1.0. A name that is no version becomes one that sorts before all versions.
VERSION=${2#v}
case $VERSION in [0-9]*.*) ;; *) VERSION=0.0.0~$(printf %s "$VERSION" | tr -c 'A-Za-z0-9.+~\n' .) ;; esac
# Both formats sort 1.2.0~rc1 before 1.2.0, and the packager would make that of 1.2.0-rc1. It
# would not change the version that librds-dev needs of librds.
case $VERSION in *-*) VERSION=${VERSION%%-*}~$(printf %s "${VERSION#*-}" | tr - .) ;; esac
ARCH=$(${GO:-go} env GOARCH)
BUILD=${BUILD:-bin}
RDSCTL=${RDSCTL:-$BUILD/rdsctl}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export VERSION ARCH BUILD SOURCE_DATE_EPOCH
mkdir -p "$out" bin/package
"$RDSCTL" config docs >bin/package/rdsd.toml
rm -rf bin/package/man bin/package/completion
"$RDSCTL" __manual man bin/package/man
gzip -n9 bin/package/man/*
mkdir -p bin/package/completion
for shell in bash zsh fish; do "$RDSCTL" completion $shell >bin/package/completion/$shell; done
tool=${GO:-go}
rm -rf bin/package/librds-man
mkdir -p bin/package/librds-man
cp "$BUILD"/librds/man/man3/*.3 "$BUILD"/librds/man/man7/*.7 bin/package/librds-man
gzip -n9 bin/package/librds-man/*
gzip -n9 <fabric/man/fi_rdsd.7 >bin/package/fi_rdsd.7.gz
case $ARCH in amd64) triple=x86_64-linux-gnu ;; arm64) triple=aarch64-linux-gnu ;; *) die "there are packages for amd64 and arm64, and GOARCH is $ARCH" ;; esac
for format in deb rpm; do
	export LIBDIR=/usr/lib FIDIR=/usr/lib/$triple/libfabric
	[ $format = deb ] || LIBDIR=/usr/lib64 FIDIR=/usr/lib64/libfabric
	sed -e "s|^libdir=.*|libdir=$LIBDIR|" "$BUILD"/librds/rds.pc >bin/package/rds.pc
	packages="nfpm librds librds-dev librdsd-preload librds-fi"
	[ $format = rpm ] || packages+=" python3-rds"
	for package in $packages; do
		GOARCH= "$tool" run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.44.2 package --config contrib/package/$package.yaml --packager $format --target "$out"
	done
done
