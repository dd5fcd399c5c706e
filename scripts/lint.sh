#!/usr/bin/env bash
# Runs golangci-lint over both modules with .golangci.yml, and over verbs/ibv with the tag
# ibv, and fails on a finding.
# Go fetches it from the module proxy and builds it, once for each version: its
# caches keep sources, program and what was found in packages that did not change.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_go
cd "$ROOT"
golangci=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.6.2
export CGO_ENABLED=0 GOFLAGS=
go run "$golangci" version >/dev/null ||
	die "${golangci##*/} cannot be built: it takes the Go module proxy, once"
status=0
for module in . bench/peers; do
	(cd "$module" && go run "$golangci" run ./...) || status=1
done
if need_ibv; then
	go run -exec 'env CGO_ENABLED=1' "$golangci" run --build-tags ibv ./verbs/ibv ./cmd/rdsd || status=1
else
	echo "verbs/ibv was not looked at: it needs a C compiler, libibverbs-dev and librdmacm-dev"
fi
exit $status
