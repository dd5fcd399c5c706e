# rdsd. `make demo` shows it, `make test` proves it; `make help` lists the rest.

GO          ?= go
# Where the programs, and in librds the libraries, are built. scripts/artifacts.sh has one for each architecture.
BIN         ?= bin
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The metrics listener speaks HTTP/1; without HTTP/2 rdsd is 0.4 MB smaller.
TAGS         = nethttpomithttp2
BUILDFLAGS   = -trimpath -buildvcs=false -tags '$(TAGS)' -ldflags '$(STRIP) -X github.com/rdsd/rdsd/internal/version.version=$(VERSION)'
SEEDS       ?= 200
FUZZTIME    ?= 30s
SECONDS     ?= 120
SEED        ?= 0
CAMPAIGNS   ?= 1
UPGRADES    ?= 0s
RUNS        ?= 5
VM          ?= ./test/vmlab/...

# Go's archive installs to /usr/local/go. As scripts/lib.sh does, look there too
# if the shell's PATH has no go.
export PATH := $(PATH):/usr/local/go/bin
export CGO_ENABLED ?= 0

.PHONY: all programs build build-ibv librds preload preload-test afrds-judges wycheproof python fabric demo demo-mpi test test-all check test-loaded race sim model mutants conformance fuzz e2e ledger vm vm-short vm-long page packages package-test artifacts release-test bench bench-peers storm lint arm64 clean help need-go

all: build

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

need-go:
	@scripts/need-go.sh

programs: need-go ## bin/rdsd, bin/rdsctl
	@mkdir -p $(BIN)
	$(GO) build $(BUILDFLAGS) -o $(BIN)/ ./cmd/rdsd ./cmd/rdsctl

build: programs ## bin/rdsd, bin/rdsctl, bin/blockstore, bin/nbd
	$(GO) build $(BUILDFLAGS) -o bin/blockstore ./examples/blockstore
	$(GO) build $(BUILDFLAGS) -o bin/nbd ./examples/nbd

build-ibv: TAGS += ibv
build-ibv: need-go ## bin/rdsd with RDMA devices (libibverbs, librdmacm, cgo)
	@scripts/need-ibv.sh
	@mkdir -p bin
	CGO_ENABLED=1 $(GO) build $(BUILDFLAGS) -o bin/rdsd ./cmd/rdsd

librds: need-go ## bin/librds: the C library, shared and static, rds.pc, manual pages (needs a C compiler)
	@$(MAKE) -s -C librds OUT=$(CURDIR)/$(BIN)/librds VERSION=$(VERSION) all
	@GOARCH= $(GO) run ./librds/gen man librds/include/rds $(BIN)/librds/man/man3
	@mkdir -p $(BIN)/librds/man/man7 && cp librds/man/librds.7 $(BIN)/librds/man/man7

preload: ## bin/librds/librdsd-preload.so, for rdsctl run (needs a C compiler)
	@$(MAKE) -s -C preload OUT=$(CURDIR)/$(BIN)/librds all

preload-test: need-go ## the preload library's tests, with rds-tools built in RDS_TOOLS=DIR
	@RDS_TOOLS='$(RDS_TOOLS)' $(GO) test -count=1 -v -timeout 20m ./preload $(PRELOADFLAGS)

python: librds ## bin/python: package rds for Python, and its wheel (needs Debian's python3-dev, -cffi, -setuptools, -wheel)
	@CC='$(CC)' RDS_LIBRDS=$(CURDIR)/$(BIN)/librds scripts/python.sh $(CURDIR)/$(BIN)/python '$(VERSION)'

fabric: need-go ## bin/fabric/librdsd-fi.so, rdsd as a provider of libfabric (needs a C compiler and libfabric-dev)
	@CC='$(CC)' AR='$(AR)' CFLAGS='$(CFLAGS)' FABRIC_CFLAGS='$(FABRIC_CFLAGS)' FABRIC_LDFLAGS='$(FABRIC_LDFLAGS)' scripts/fabric.sh $(CURDIR)/$(BIN)/fabric

wycheproof: need-go ## Wycheproof's vectors for the ciphers of TLS records (100 MB, and a Go of their own module's version)
	@$(GO) -C test/wycheproof test -count=1 ./...

afrds-judges: need-go ## other people's tests of AF_RDS under the preload library, as root: CPython's, qperf, and with RDS_TOOLS=DIR:DIR, KERNEL_SELFTESTS=DIR (tools/testing/selftests), LTP=DIR, RDS_PROV=DIR FABTESTS=DIR (libfabric) those; docs/interop.md has the results
	@scripts/judges.sh

demo: build ## copy a file between two daemons under connection resets (FILE=..., RESETS=n)
	@$(GO) build $(BUILDFLAGS) -o bin/demo ./internal/demo
	@exec bin/demo $(if $(FILE),-file '$(FILE)') $(if $(RESETS),-resets $(RESETS)) $(if $(MIB),-mib $(MIB))

demo-mpi: SECONDS = 30
demo-mpi: programs fabric ## Open MPI over two daemons while their connection is reset and both are replaced (SECONDS=30 RANKS=4, BESIDE=1: then over tcp;ofi_rxm)
	@BIN=$(BIN) scripts/demo-mpi.sh '$(SECONDS)' '$(or $(RANKS),4)' '$(BESIDE)'

test: need-go ## at most ten minutes: unit tests, a short simulation, race detector, end to end (scripts/levels.txt)
	@scripts/test.sh core static unit race e2e

test-all: test ## everything: make test, then lint and all that it left out
	@scripts/test.sh rest static unit race sim e2e

check: need-go ## format, vet, lint, all unit tests
	@scripts/test.sh all static unit

race: need-go ## all unit tests under the race detector (needs a C compiler)
	@scripts/test.sh all race

sim: need-go ## simulation with SEEDS=n seeds
	@SEEDS=$(SEEDS) scripts/test.sh all sim

model: need-go ## the Spin models in test/models/, and conn's exhaustive search with larger scripts (needs spin and gcc)
	@scripts/model.sh
	$(GO) test -count=1 -timeout 30m ./conn -run '^TestSearch$$' -v -conn.deep

mutants: need-go ## broken variants of the code, each with the check that catches it
	$(GO) run ./test/mutant/run $(MUTANTS)
	$(if $(MUTANTS),,$(GO) test -tags leaveout -timeout 60m -run '^TestEachValueMatters$$' ./internal/engine ./internal/daemon ./internal/stats)

conformance: need-go ## RC semantics and RDS, statement by statement (GROUP="RC A E")
	@GROUP='$(GROUP)' scripts/conformance.sh

e2e: need-go ## real daemons and clients
	@scripts/test.sh all e2e

ledger: need-go ## account for every message of applications over three daemons, under all faults: SECONDS=120 SEED=n CAMPAIGNS=1, UPGRADES=2s: with planned restarts of all daemons and without any end
	$(GO) test -count=1 -v -timeout 24h ./test/ledger -ledger.seconds $(SECONDS) -ledger.seed $(SEED) -ledger.campaigns $(CAMPAIGNS) -ledger.upgrades $(UPGRADES) -ledger.measure $(LEDGERFLAGS)

test-loaded: need-go ## all tests RUNS=5 times beside a busy loop on every CPU, with each test's failures counted (PKGS='./rds ./test/e2e' LOAD=2)
	@RUNS='$(RUNS)' scripts/loaded.sh

fuzz: need-go ## every fuzz target in turn, FUZZTIME each
	@FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

vm: need-go ## tests in emulated machines: kernel RDS, siw, soft-RoCE, rping, perftest (VM=./test/vmlab/..., VMFLAGS='-run ...', KERNEL=6.12)
	@test/vmlab/machine/setup.sh bin/vmlab$(KERNEL:%=-%) $(KERNEL)
	@RDSD_VMLAB=$(CURDIR)/bin/vmlab$(KERNEL:%=-%) $(GO) test -count=1 -v -p 1 -timeout 60m $(VMFLAGS) $(VM) $(VMARGS) 2>&1 | \
		awk '!/^=== RUN/ { print } /--- PASS/ { p++ } /--- FAIL|^FAIL/ { f++ } \
		END { print p + 0 " PASS, " f + 0 " FAIL"; exit !p || f }'

vm-short: VM = ./test/vmlab/rdstcp ./test/vmlab/rdsib ./test/vmlab/ibv
vm-short: VMFLAGS = -short
vm-short: vm ## a short form of vm in about three minutes, for CI: kernel RDS over TCP and soft-RoCE, two rdsd over soft-RoCE

vm-long: export RDSD_VMLAB_LONG = 1
vm-long: export RDSD_VMLAB_CROSSINGS = 1000
vm-long: VM = ./test/vmlab/rdsib
vm-long: VMFLAGS = -run '//161' -timeout 3h
vm-long: vm ## a thousand crossed connects with kernel RDS, with rdsd at the smaller and at the larger address: an hour or two

page: need-go ## the status page in headless Chromium, with a screenshot in docs/page.png (installs chromium as root)
	@test/page/setup.sh
	@RDSD_CHROMIUM=$$(command -v chromium) RDSD_SCREENSHOT=$(CURDIR)/docs/page.png $(GO) test -count=1 -v ./test/page

packages: STRIP = -s -w
packages: programs librds preload python fabric ## debs and rpms of rdsd, librds, librds-dev, librdsd-preload, librds-fi and python3-rds in bin/packages (nfpm through go run)
	@rm -rf bin/packages
	@GO='$(GO)' contrib/package/build.sh bin/packages '$(VERSION)'

package-test: packages ## install, run, upgrade and remove deb and rpm in a fresh root folder (as root)
	@GO='$(GO)' contrib/package/test.sh bin/packages/rdsd_*.deb bin/packages/rdsd-*.rpm

artifacts: need-go ## all files of a release in bin/release: debs, rpms, programs, images, SBOM, checksums (ARCHS=amd64)
	@ARCHS='$(ARCHS)' scripts/artifacts.sh bin/release '$(VERSION)'

release-test: need-go ## make the files of a release of HEAD twice, in two folders, and compare them (ARCHS=amd64)
	@ARCHS='$(ARCHS)' scripts/reproduce.sh '$(VERSION)'

bench: build bench-peers ## rdsd beside its peers and the bare path (BENCHFLAGS='-groups rtt,rate -plots DIR')
	@$(GO) -C test/bench build $(BUILDFLAGS) -o $(CURDIR)/bin/bench .
	@exec bin/bench $(BENCHFLAGS)

bench-peers: need-go ## bin/bench-peers: NATS, gRPC, ZeroMQ, libfabric, UCX and, with AERON=DIR, Aeron for the bench
	@test/bench/peers/build.sh bin/bench-peers

storm: programs ## a host's peers are away and come back at once: PEERS=1000 SECONDS=60, as root
	@test/storm/storm.sh $(or $(PEERS),1000) $(or $(SECONDS),60)

lint: need-go ## golangci-lint; the first run builds it
	@scripts/lint.sh

arm64: need-go ## build and vet for arm64
	GOARCH=arm64 $(GO) build -buildvcs=false -o /dev/null ./...
	GOARCH=arm64 $(GO) vet ./...
	for m in test/bench $(dir $(wildcard contrib/*/go.mod)); do GOARCH=arm64 $(GO) -C $$m vet ./... || exit 1; done

clean: ## remove what was built
	rm -rf bin
