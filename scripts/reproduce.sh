#!/usr/bin/env bash
# Makes the files of a release of HEAD twice and compares them:
#   scripts/reproduce.sh VERSION [FOLDER]
# The second time the folder, the umask, the time zone and the age of the files are others. If
# all files are the same they replace FOLDER. ARCHS limits the architectures (artifacts.sh).
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_go
cd "$ROOT"
[ $# -eq 1 ] || [ $# -eq 2 ] || die "usage: reproduce.sh VERSION [FOLDER]"
need_clean_tree
commit=$(git rev-parse HEAD)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# once FOLDER clones the commit into the folder and makes its files.
once() {
	git clone -q "$ROOT" "$1"
	git -C "$1" checkout -q --detach "$commit"
	"$1/scripts/artifacts.sh" bin/release "$version"
}
version=$1
once "$dir/one"
(
	umask 077
	export TZ=Pacific/Auckland
	mkdir "$dir/another"
	once "$dir/another/folder"
)
first=$dir/one/bin/release
if ! diff "$first/SHA256SUMS" "$dir/another/folder/bin/release/SHA256SUMS" >&2; then
	mkdir -p bin && rm -rf bin/reproduce
	mv "$dir" bin/reproduce
	die "made twice, these files of a release differ: compare them in bin/reproduce (diffoscope one/bin/release/F another/folder/bin/release/F)"
fi
if [ $# -eq 2 ]; then
	rm -rf "$2"
	mkdir -p "$(dirname "$2")"
	cp -r "$first" "$2"
fi
echo "the $(wc -l <"$first/SHA256SUMS") files of $version are the same when made twice"
