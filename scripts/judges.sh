#!/usr/bin/env bash
# Runs other people's tests of AF_RDS under the preload library: as root, which the namespaces need. Debian's are
# installed if they are missing: qperf, and what the kernel's self-test calls. What Debian does not have is named by
# RDS_TOOLS, KERNEL_SELFTESTS (both also lists with colons), LTP, RDS_PROV and FABTESTS; without them its tests are skipped,
# with the reason. Each judge says its version.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_go
[ "$(id -u)" -eq 0 ] || die "afrds-judges makes network namespaces: run it as root (sudo make afrds-judges)"
for p in qperf tcpdump killall ping; do
	command -v "$p" >/dev/null || { need_packages qperf tcpdump psmisc iputils-ping || true; break; }
done
cd "$ROOT"
go test -count=1 -v -timeout 40m ./preload -run '^(TestPython|TestQperf|TestSelftest|TestSelftestOptions|TestLTP|TestTools|TestInfo|TestFabtests)$' |
	grep -v -e '^=== RUN' -e 'level='
