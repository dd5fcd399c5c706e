#!/usr/bin/env bash
# Makes a release of the commit that is checked out:
#   scripts/release.sh [-n] vX.Y.Z
# In a fresh clone it gives the section "Unreleased" of CHANGELOG.md the version and
# date, commits and tags that, builds the packages, and checks that the packaged
# programs and those of a plain `go install` report the version. Only then it
# copies commit and tag to this repository, and the packages to bin/packages.
# With -n it copies nothing. It never pushes.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_go
cd "$ROOT"
dry=
if [ "${1:-}" = -n ]; then
	dry=1
	shift
fi
[ $# -eq 1 ] || { sed -n '2,8s/^# \?//p' "$0" >&2; exit 2; }
version=$1
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || die "$version is not a version like v1.2.3"
[ -z "$(git status --porcelain)" ] || die "there are uncommitted changes: commit or stash them (git status)"
! git rev-parse -q --verify "refs/tags/$version" >/dev/null || die "the tag $version already exists"
branch=$(git symbolic-ref --short -q HEAD) || die "no branch is checked out"

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
	END { exit !(found && entries) }' CHANGELOG.md >"$dir/changelog" || die "CHANGELOG.md has no entries under ## Unreleased"
cp "$dir/changelog" CHANGELOG.md
git commit -qam "Release $version"
git tag -a -m "rdsd $version" "$version"

make packages VERSION="$version"
reported() { # COMMAND: its output must have the version as a word
	[[ " $("$@") " == *" $version "* ]] || die "$* reports $("$@"), want $version"
}
reported bin/rdsd -version
reported bin/rdsctl version
ls bin/packages/*"${version#v}"* >/dev/null || die "no package is named after ${version#v}"
GOBIN=$dir/plain GOFLAGS= go install -buildvcs=true ./cmd/rdsd ./cmd/rdsctl
reported "$dir/plain/rdsd" -version
reported "$dir/plain/rdsctl" version

if [ -n "$dry" ]; then
	echo "$version could be released"
	exit
fi
git -C "$ROOT" pull -q --ff-only "$dir/rdsd" "$branch"
git -C "$ROOT" fetch -q "$dir/rdsd" "refs/tags/$version:refs/tags/$version"
mkdir -p "$ROOT/bin/packages"
cp bin/packages/* "$ROOT/bin/packages/"
echo "$version is tagged; packages in bin/packages. Publish with: git push --follow-tags"
