#!/usr/bin/env bash
# Builds debs and rpms from the programs and libraries in bin/ and writes them to FOLDER:
#   contrib/package/build.sh FOLDER VERSION
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
export VERSION ARCH
mkdir -p "$out" bin/package
bin/rdsctl config docs >bin/package/rdsd.toml
rm -rf bin/package/man bin/package/completion
bin/rdsctl __manual man bin/package/man
gzip -n9 bin/package/man/*
mkdir -p bin/package/completion
for shell in bash zsh fish; do bin/rdsctl completion $shell >bin/package/completion/$shell; done
tool=${GO:-go}
rm -rf bin/package/librds-man
mkdir -p bin/package/librds-man
cp bin/librds/man/man3/*.3 bin/librds/man/man7/*.7 bin/package/librds-man
gzip -n9 bin/package/librds-man/*
for format in deb rpm; do
	export LIBDIR=/usr/lib
	[ $format = deb ] || LIBDIR=/usr/lib64
	sed -e "s|^libdir=.*|libdir=$LIBDIR|" bin/librds/rds.pc >bin/package/rds.pc
	for package in nfpm librds librds-dev librdsd-preload; do
		"$tool" run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.44.2 package --config contrib/package/$package.yaml --packager $format --target "$out"
	done
done
