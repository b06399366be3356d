# "make help" lists the targets. CMake presets and the scripts in tools/ and tests/tiers/ do the work.

export JOBS ?= $(shell nproc)
TIERS := tests/tiers/run_tiers.py
QUICK_TIERS := style unit contract api charts rdma end-to-end
CHECK_TIERS := style analysis changed tidy-changed smoke
# Other tiers install what they need by tools/setup slow or by themselves.
OTHER_TIERS := analysis smoke end-to-end-thorough rdma-full asan tsan fuzz soak nixl vllm lmcache image kubernetes \
               older-rocm tidy asan-end-to-end tsan-end-to-end arm64 soak-long fuzz-long previous gpu
FAKE_GPU_fake := fake_cuda
FAKE_GPU_fake-hip := fake_hip

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run build test check test-nightly format clean setup setup-test setup-slow everything \
        $(QUICK_TIERS:%=test-%) $(OTHER_TIERS:%=test-%)

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-26s %s\n", $$1, $$2 }'

run: setup ## install what is missing, build what the demo runs, and run it (KEEP=1 leaves it up; GPU=real, fake or fake-hip: between GPUs)
	@tools/build release demo $(FAKE_GPU_$(GPU))
	KEEP=$(KEEP) GPU=$(GPU) tools/demo

build: setup ## the programs and the library that are installed, and gantry-bench, in build/release
	@tools/build release installed gantry-bench

test: setup-test everything ## build and run the seven quick tiers (ten minutes)
	@$(TIERS) run @quick
	@$(TIERS) summary @quick

check: setup-slow ## before a commit: style, clang's analysis, clang-tidy and suites of what changed, smoke cases (three minutes)
	@tools/build release installed gantry-bench fake_cuda fake_hip
	@$(TIERS) run $(CHECK_TIERS)
	@$(TIERS) summary $(CHECK_TIERS)

test-nightly: setup-slow everything ## the seven nightly tiers, too long for every change (hours)
	@$(TIERS) run @nightly
	@$(TIERS) summary @nightly

test-style: ## layout, includes, sizes, formatting, types of the Python packages (seconds)
test-unit: ## one class or function at a time (a minute)
test-contract: ## what every transport, memory and driver must do, over the fakes (a minute)
test-api: ## REST against docs/rest_api.yaml; dashboards and alert rules (a minute)
test-charts: ## the Helm charts, rendered by the real helm (a minute; the first time helm is built)
test-rdma: ## what only real libibverbs shows, on soft-RoCE in a guest, or with GANTRY_TEST_RDMA=real on this machine's devices
test-end-to-end: ## sidecars and workloads as processes (three minutes)
test-analysis: ## clang's thread-safety analysis over every source (two minutes; seconds where nothing changed)
test-smoke: ## twelve cases from end to end (seconds)
test-end-to-end-thorough: ## the variations of the cases in test-end-to-end
test-rdma-full: ## the rest of what runs over RDMA devices: pairs, lost packets, bounce
test-asan: ## the C++ suites and the smoke cases under AddressSanitizer and UBSan (own build)
test-tsan: ## the C++ suites and the smoke cases under ThreadSanitizer (own build)
test-fuzz: ## every parser under libFuzzer, GANTRY_FUZZ_SECONDS=20 each (own build)
test-soak: ## load, kills and cut connections; the head of tests/tiers/soak says what bounds it
test-nixl: ## the NIXL plugin in each supported version of NIXL, over sidecars, on the CPU (minutes; the first time 1.5 GB from PyPI)
test-vllm: ## prefill and decode of the real vLLM over two sidecars, on the CPU (minutes; the first time 6 GB from PyPI)
test-lmcache: ## LMCache's servers over two sidecars, on the CPU (two minutes; needs the environment of test-vllm, and makes it)
test-image: ## the container image, built without Docker and looked into, as root (minutes)
test-kubernetes: ## charts and image on a real Kubernetes node, as root (ten minutes; the first time half an hour more)
test-older-rocm: ## AMD's driver over fakes of the releases before the newest (a minute)
test-tidy: ## clang-tidy over every source (ten minutes on two cores)
test-asan-end-to-end: ## all sidecars and workloads under AddressSanitizer and UBSan (half an hour)
test-tsan-end-to-end: ## all sidecars and workloads under ThreadSanitizer (half an hour)
test-arm64: ## cross-compiled for arm64, looked at and run in qemu's user mode (own build)
test-soak-long: ## the soak tier at its full length (half an hour)
test-fuzz-long: ## every parser for five minutes (half an hour)
test-previous: ## beside a build of the version before, in GANTRY_PREVIOUS_BIN_DIR (a minute)
test-gpu: ## what needs real GPUs, on this machine's (some minutes)

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

everything:
	@tools/build release

$(QUICK_TIERS:%=test-%): test-%: setup-test everything
	@$(TIERS) run $*
	@$(TIERS) summary $*

$(OTHER_TIERS:%=test-%): test-%: setup-slow everything
	@$(TIERS) run $*
	@$(TIERS) summary $*
