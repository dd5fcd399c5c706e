#!/usr/bin/env bash
# Builds the container image as an OCI archive, without a daemon, a registry or root:
#   contrib/container/image.sh PROGRAMS ARCH VERSION FILE
# PROGRAMS is the folder with rdsd and rdsctl of the architecture. Everything else is as the
# Containerfile has it, but for HEALTHCHECK, which OCI images do not have. All times are
# SOURCE_DATE_EPOCH, so the same programs give the same archive. umoci (Debian: umoci) makes it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. scripts/lib.sh
[ $# = 4 ] || die "usage: image.sh PROGRAMS ARCH VERSION FILE"
programs=$1 arch=$2 version=$3 file=$4
at=$(date -u -d "@${SOURCE_DATE_EPOCH:?set it to the commit\'s time (git log -1 --format=%ct)}" +%FT%TZ)
command -v umoci >/dev/null || need_packages umoci
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# said WORD prints what the Containerfile's instruction says.
said() { sed -n "s/^$1 //p" contrib/container/Containerfile; }
install -d "$work/root/usr/bin"
install -m 755 "$programs/rdsd" "$programs/rdsctl" "$work/root/usr/bin/"
install -m 644 LICENSE "$work/root/LICENSE"
chmod 755 "$work/root" "$work/root/usr" "$work/root/usr/bin"
find "$work/root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

image=$work/layout:rdsd:$version
rootless=()
[ "$(id -u)" -eq 0 ] || rootless=(--rootless)
umoci init --layout "$work/layout"
umoci new --image "$image"
umoci insert --image "$image" "${rootless[@]}" --history.created "$at" --history.created_by contrib/container/image.sh "$work/root" /
umoci config --image "$image" --no-history --created "$at" --os linux --architecture "$arch" \
	--config.entrypoint "$(said ENTRYPOINT | tr -d '[]"')" --config.env "$(said ENV)" --config.exposedports "$(said EXPOSE)" \
	--config.label "org.opencontainers.image.version=$version" \
	--config.label org.opencontainers.image.source=https://github.com/rdsd/rdsd \
	--config.label org.opencontainers.image.licenses=Apache-2.0
umoci gc --layout "$work/layout"
# The name under which Podman, containerd and Docker load it. umoci's, rdsd:VERSION, is skopeo's.
sed -i 's,"org.opencontainers.image.ref.name":"\([^"]*\)",&\,"io.containerd.image.name":"docker.io/library/\1",' "$work/layout/index.json"
tarball "$work/layout" . >"$file"
