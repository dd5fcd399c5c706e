#!/usr/bin/env bash
# Makes a release of the commit that is checked out:
#   scripts/release.sh [-n] vX.Y.Z
# In a fresh clone it gives the section "Unreleased" of CHANGELOG.md the version and
# date, and contrib/kubernetes the image's tag, and commits and tags that. It makes all files of the release twice (reproduce.sh),
# and checks that they are the same, and that the programs and those of a plain
# `go install` report the version. Only then it copies commit and tag to this
# repository, and the files to bin/release. With -n it copies nothing. It never pushes.
#   scripts/release.sh
# makes the files of the release whose tag is checked out, once more, in bin/release.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_go
cd "$ROOT"
dry=
if [ "${1:-}" = -n ]; then
	dry=1
	shift
	[ $# -eq 1 ] || { sed -n '2,10s/^# \?//p' "$0" >&2; exit 2; }
fi
[ $# -le 1 ] || { sed -n '2,10s/^# \?//p' "$0" >&2; exit 2; }
need_clean_tree

# reported COMMAND...: its output must have the version as a word.
reported() {
	[[ " $("$@") " == *" $version "* ]] || die "$* reports $("$@"), want $version"
}

# files OUT makes the release's files of HEAD in OUT and checks what the programs report.
files() {
	scripts/reproduce.sh "$version" "$1"
	local programs
	programs=$(mktemp -d)
	tar xzf "$1/rdsd-${version#v}-linux-$(go env GOHOSTARCH).tar.gz" -C "$programs" --strip-components 1
	reported "$programs/rdsd" -version
	reported "$programs/rdsctl" version
	rm -rf "$programs"
	ls "$1"/*"${version#v}"*.deb "$1"/*"${version#v}"*.rpm >/dev/null || die "no package is named after ${version#v}"
}

if [ $# -eq 0 ]; then
	version=$(git describe --tags --exact-match --match 'v[0-9]*' HEAD 2>/dev/null) ||
		die "HEAD has no tag of a version: check out a release (git tag; git checkout vX.Y.Z), or make one (scripts/release.sh vX.Y.Z)"
	files bin/release
	exit
fi
version=$1
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || die "$version is not a version like v1.2.3"
! git rev-parse -q --verify "refs/tags/$version" >/dev/null ||
	die "the tag $version already exists: name another version, or make that release's files again (git checkout $version, then scripts/release.sh)"
branch=$(git symbolic-ref --short -q HEAD) || die "no branch is checked out: check out the one to release from (git checkout BRANCH)"
for key in user.name user.email; do
	git config "$key" >/dev/null || die "git does not know whose release this is: git config $key ..."
done

dir=$(mktemp -d)
trap 'chmod -R u+w "$dir" && rm -rf "$dir"' EXIT
git clone -q --branch "$branch" "$ROOT" "$dir/rdsd"
cd "$dir/rdsd"
git config user.name "$(git -C "$ROOT" config user.name)"
git config user.email "$(git -C "$ROOT" config user.email)"

awk -v v="${version#v}" -v d="$(date -u +%F)" '
	/^## / && open { open = 0 }
	/^## Unreleased$/ { found = open = 1; print "## Unreleased\n\n## " v ", " d; next }
	open && /^- / { entries++ }
	{ print }
	END { exit !(found && entries) }' CHANGELOG.md >"$dir/changelog" ||
	die "CHANGELOG.md has no entries under ## Unreleased: write what is new for users"
cp "$dir/changelog" CHANGELOG.md
sed -i -E "s/(image: rdsd:)[0-9][0-9A-Za-z.-]*/\1${version#v}/" contrib/kubernetes/*.yaml
sed -i -E "s/^(version|appVersion): .*/\1: ${version#v}/" contrib/kubernetes/chart/Chart.yaml
git commit -qam "Release $version"
git tag -a -m "rdsd $version" "$version"

files "$dir/files"
GOBIN=$dir/plain GOFLAGS= go install -buildvcs=true ./cmd/rdsd ./cmd/rdsctl
reported "$dir/plain/rdsd" -version
reported "$dir/plain/rdsctl" version

if [ -n "$dry" ]; then
	echo "$version could be released"
	exit
fi
git -C "$ROOT" pull -q --ff-only "$dir/rdsd" "$branch"
git -C "$ROOT" fetch -q "$dir/rdsd" "refs/tags/$version:refs/tags/$version"
rm -rf "$ROOT/bin/release"
mkdir -p "$ROOT/bin"
cp -r "$dir/files" "$ROOT/bin/release"
echo "$version is tagged; its files are in bin/release. Publish with: git push --follow-tags"
