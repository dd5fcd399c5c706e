#!/usr/bin/env bash
# golangci-lint where it is installed, else what the Go toolchain has.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_go
cd "$ROOT"
if command -v golangci-lint >/dev/null; then
	exec golangci-lint run ./...
fi
echo "golangci-lint is not installed: gofmt, go vet and the tidy test only"
exec scripts/test.sh static
