#!/usr/bin/env bash
# Ends with a clear message when there is no Go that can build this module.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_go
