#!/usr/bin/env bash
# Makes sure that a C compiler, libibverbs-dev and librdmacm-dev are installed. As
# root it installs them.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_go
need_ibv || die "bin/rdsd with RDMA devices needs a C compiler, libibverbs-dev and librdmacm-dev"
