#!/usr/bin/env bash
# Fails with a message if there is no Go that can build this module.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_go
