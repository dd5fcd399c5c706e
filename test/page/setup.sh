#!/usr/bin/env bash
# Installs Debian's Chromium where there is none.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
command -v chromium >/dev/null || need_packages chromium fonts-dejavu-core
