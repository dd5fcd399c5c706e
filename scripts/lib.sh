# shellcheck shell=bash
# Helpers for the scripts beside this file; sourced, not run.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# MODULES are the modules of their own that are checked as the main one is.
MODULES=(test/bench contrib/rpcprom contrib/rpcotel)

die() {
	echo "rdsd: $*" >&2
	exit 1
}

# need_go ends the script with a message unless there is a Go toolchain that is at
# least as new as the version in go.mod.
need_go() {
	local want have
	want=$(awk '$1 == "go" {print $2; exit}' "$ROOT/go.mod")
	command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin
	command -v go >/dev/null ||
		die "Go $want or newer is needed and no 'go' is in PATH; see https://go.dev/doc/install"
	have=$(cd "$ROOT" && go env GOVERSION) || die "'go env GOVERSION' does not run; Go $want or newer is needed"
	have=${have#go}
	have=${have%% *}
	[ "$(printf '%s\n%s\n' "$want" "$have" | sort -V | head -n1)" = "$want" ] ||
		die "Go $want or newer is needed, this is Go $have; see https://go.dev/doc/install"
}

# need_packages PACKAGE... installs Debian packages without asking, if it runs as root.
# Otherwise, or if that fails, it prints the apt-get line for them and returns 1.
need_packages() {
	if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
		echo "installing $*" >&2
		export DEBIAN_FRONTEND=noninteractive
		apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1 ||
			{ apt-get update -q >/dev/null && apt-get install -y -q --no-install-recommends "$@" >/dev/null; } &&
			return 0
	fi
	echo "missing packages: apt-get install -y --no-install-recommends $*" >&2
	return 1
}

# have_cc says whether a C program with libc's headers compiles. The race detector
# needs cgo, and cgo needs that.
have_cc() {
	local cc
	cc=$(go env CC)
	command -v "${cc%% *}" >/dev/null &&
		echo 'int main(void) { return 0; }' | $cc -x c -include stdlib.h -o /dev/null - 2>/dev/null
}

need_cc() { have_cc || need_packages gcc libc6-dev; }

# need_python installs what builds package rds for Python, with Debian's python3.
need_python() {
	/usr/bin/python3 -c 'import cffi, os, setuptools, sysconfig, wheel; os.stat(sysconfig.get_config_h_filename())' 2>/dev/null ||
		need_packages python3-dev python3-cffi python3-setuptools python3-wheel
}

# have_fabric says whether a C program compiles and links with libfabric and its headers for providers.
have_fabric() {
	command -v make >/dev/null && have_cc &&
		echo 'int main(void) { return 0; }' | $(go env CC) ${FABRIC_CFLAGS:-} -x c -include rdma/providers/fi_prov.h -o /dev/null - ${FABRIC_LDFLAGS:-} -lfabric 2>/dev/null
}

need_fabric() { have_fabric || need_packages gcc libc6-dev make libfabric-dev; }

# need_mpi installs Open MPI, with the compiler for its programs, and what makes network namespaces.
need_mpi() {
	command -v mpicc >/dev/null && command -v mpirun >/dev/null && command -v ip >/dev/null && command -v unshare >/dev/null ||
		need_packages gcc libc6-dev openmpi-bin libopenmpi-dev iproute2 util-linux
}

# need_tools installs the programs that tests run. A test skips if its program
# is missing, so a failed installation is no error here.
need_tools() {
	if grep -rqs --include='*_test.go' 'LookPath("tshark")' "$ROOT"; then
		command -v tshark >/dev/null || need_packages tshark || true
	fi
	need_cc || true # librds
	command -v make >/dev/null && command -v pkg-config >/dev/null ||
		need_packages make pkg-config || true # librds
	command -v nbdinfo >/dev/null && command -v nbdcopy >/dev/null && command -v fio >/dev/null && command -v qemu-img >/dev/null && command -v nbdkit >/dev/null ||
		need_packages libnbd-bin fio qemu-utils nbdkit || true # examples/nbd
	command -v ip >/dev/null && command -v openssl >/dev/null ||
		need_packages iproute2 openssl || true # e2e: the commands in README.md
	command -v systemd-analyze >/dev/null || need_packages systemd || true # internal/service: rates the units' sandbox
	command -v nft >/dev/null || need_packages nftables || true # test/ledger: drops packets
	command -v strace >/dev/null || need_packages strace || true # e2e: the system calls that the units allow
	python3 -c 'import test.test_socket' 2>/dev/null || { # preload: CPython's tests
		command -v python3 >/dev/null || need_packages python3
		need_packages "lib$(python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')-testsuite"
	} || true
	need_python || true # python
	need_fabric || true # fabric
	command -v fi_pingpong >/dev/null || need_packages libfabric-bin || true # the same
	need_mpi || true # the same
	/usr/bin/python3 -c 'import numpy' 2>/dev/null && command -v mypy >/dev/null || need_packages python3-numpy mypy || true # the same
	command -v rustc >/dev/null || need_packages rustc || true # examples/rust
	command -v crun >/dev/null && command -v runc >/dev/null && command -v umoci >/dev/null && [ -e /usr/share/containers/seccomp.json ] ||
		need_packages crun runc umoci golang-github-containers-common || true # e2e: the image of a release
	command -v tmux >/dev/null || need_packages tmux || true # e2e: rdsctl top
	command -v prometheus >/dev/null && command -v promtool >/dev/null ||
		need_packages prometheus || true # e2e: scrapes the metrics
	command -v zsh >/dev/null && command -v fish >/dev/null ||
		need_packages zsh fish || true # cmd/rdsctl: completions
}

# have_ibv says whether a C program compiles and links with libibverbs and librdmacm.
have_ibv() {
	local cc
	cc=$(go env CC)
	command -v "${cc%% *}" >/dev/null &&
		echo 'int main(void) { return 0; }' | $cc -x c -include rdma/rdma_cma.h -o /dev/null - -libverbs -lrdmacm 2>/dev/null
}

need_ibv() { have_ibv || need_packages gcc libc6-dev libibverbs-dev librdmacm-dev ibverbs-providers; }

# need_clean_tree ends the script if there are changes that no commit has.
need_clean_tree() {
	git -C "$ROOT" rev-parse -q --verify HEAD >/dev/null || die "a release is made from a commit, and $ROOT is no git repository: clone it"
	[ -z "$(git -C "$ROOT" status --porcelain)" ] || die "there are uncommitted changes: commit or stash them (git status)"
}

# tarball FOLDER NAME writes FOLDER/NAME as a tar archive. It depends on names and contents
# alone; every time in it is SOURCE_DATE_EPOCH.
tarball() {
	tar --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -C "$1" -cf - "$2"
}
