#!/usr/bin/env bash
# Runs golangci-lint with .golangci.yml over all modules, and over verbs/ibv with the
# tag ibv, and Helm's and kustomize's linters over contrib/kubernetes. A finding is a failure. Go fetches and builds each version of golangci-lint
# once, by the module proxy. Go's caches then keep its sources and the program, and
# golangci-lint's own cache keeps the results for unchanged packages.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_go
cd "$ROOT"
golangci=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.6.2
export CGO_ENABLED=0 GOFLAGS=
go run "$golangci" version >/dev/null ||
	die "${golangci##*/} cannot be built: its first run needs the Go module proxy"
status=0
for module in . "${MODULES[@]}" contrib/kubernetes test/bench/peers; do
	(cd "$module" && go run "$golangci" run ./...) || status=1
done
# The module of these linters is not in MODULES, whose tests and dependencies are compiled
# once more with the race detector and for arm64: Helm's would take longer than all others.
go -C contrib/kubernetes test ./... || status=1
if need_ibv; then
	go run -exec 'env CGO_ENABLED=1' "$golangci" run --build-tags ibv ./verbs/ibv ./cmd/rdsd || status=1
else
	echo "verbs/ibv was not checked: that needs a C compiler, libibverbs-dev and librdmacm-dev"
fi
exit $status
