# "make help" lists the targets. The work is done by CMake presets and by the scripts in tools/ and tests/tiers/.

JOBS ?= $(shell nproc)
QUICK_TIERS := style unit contract api charts rdma end-to-end
SLOW_TIERS := soak fuzz asan tsan asan-end-to-end tsan-end-to-end
OTHER_TIERS := tidy previous gpu arm64 image kubernetes
TIERS := tests/tiers/run_tiers.py

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run soak build test test-all test-slow format clean setup setup-test setup-slow quick-tiers slow-tiers \
        $(QUICK_TIERS:%=test-%) $(SLOW_TIERS:%=test-%) $(OTHER_TIERS:%=test-%)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-21s %s\n", $$1, $$2 }'

run: build ## install what is missing, build, and run the demo (KEEP=1 leaves it up; GPU=real, fake or fake-hip: between GPUs)
	KEEP=$(KEEP) GPU=$(GPU) tools/demo

build: setup ## the release build, in build/release
	cmake --preset release >/dev/null
	cmake --build --preset release -j $(JOBS)

test: quick-tiers ## build and run the seven quick tiers
	@$(TIERS) summary $(QUICK_TIERS)

test-all: quick-tiers slow-tiers ## test and the slow tiers but tidy (two hours on two cores, three with an empty compiler cache)
	@$(TIERS) summary $(QUICK_TIERS) $(SLOW_TIERS)

test-slow: slow-tiers ## the slow tiers alone
	@$(TIERS) summary $(SLOW_TIERS)

test-style: ## layout, includes, sizes, formatting (seconds)
test-unit: ## one class or function at a time (seconds)
test-contract: ## what every transport, memory and driver must do, over the fakes (a minute)
test-api: ## REST against docs/rest_api.yaml; dashboards and alert rules (a minute)
test-charts: ## the Helm charts, rendered by the real helm (a minute; the first time helm is built)
test-rdma: ## libibverbs on soft-RoCE in a guest, or with GANTRY_TEST_RDMA=real on this machine's devices (a minute)
test-end-to-end: ## sidecars and workloads as processes (minutes)
test-asan: ## the C++ suites under AddressSanitizer and UBSan (own build, about 25 minutes)
test-asan-end-to-end: ## sidecars and workloads under AddressSanitizer and UBSan (half an hour)
test-tsan: ## the C++ suites under ThreadSanitizer (own build, about 25 minutes)
test-tsan-end-to-end: ## sidecars and workloads under ThreadSanitizer (half an hour)
test-fuzz: ## every parser under libFuzzer, GANTRY_FUZZ_SECONDS=60 each (own build)
test-soak: ## minutes of load, kills and cut connections
soak: test-soak ## the same: GANTRY_HOSTS_KILLS, GANTRY_LEAK_ROUNDS, GANTRY_REPLAY_REQUESTS and GANTRY_SOAK_SECONDS bound it
test-previous: ## beside a build of the version before, in GANTRY_PREVIOUS_BIN_DIR (a minute; not part of test-all)
test-gpu: ## what needs real GPUs, on this machine's (some minutes; not part of test-all)
test-arm64: ## cross-compiled for arm64, looked at and run in qemu's user mode (own build; not part of test-all)
test-image: ## the container image, built without Docker and looked into, as root (minutes; not part of test-all)
test-kubernetes: ## charts and image on a real Kubernetes node, as root (ten minutes; the first time half an hour more; not part of test-all)
test-tidy: ## clang-tidy over every file (an hour on two cores; not part of test-all)

format: setup-test ## clang-format on every C++ file that git knows
	git ls-files -z '*.h' '*.cc' '*.cu' | xargs -0 -r clang-format-14 -i

clean: ## remove build/ (the compiler cache stays)
	rm -rf build

setup:
	@tools/setup build
setup-test:
	@tools/setup test
setup-slow:
	@tools/setup slow

quick-tiers: setup-test build
	@$(TIERS) run $(QUICK_TIERS)

slow-tiers: setup-slow build
	@$(TIERS) run $(SLOW_TIERS)

$(QUICK_TIERS:%=test-%): test-%: setup-test build
	@$(TIERS) run $*
	@$(TIERS) summary $*

$(SLOW_TIERS:%=test-%) $(OTHER_TIERS:%=test-%): test-%: setup-slow build
	@$(TIERS) run $*
	@$(TIERS) summary $*
