# Everything a person does here; CI calls the same targets. `make help` lists them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Slow-to-build things are kept per user and named by version, so a second clone starts warm.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hami-py
UV_VERSION := 0.13.8
UV_HOME := $(CACHE)/uv-$(UV_VERSION)
UV := $(UV_HOME)/bin/uv
export CARGO_TARGET_DIR := $(CURDIR)/target
export UV_PYTHON_DOWNLOADS := never
# Thousands of programs start in the tests: without its bytecode each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
# The interpreter itself: uv makes the environment anew if a link or a script to it is named.
export UV_PYTHON := $(shell python3 -c 'import sys; print(sys.executable)' 2>/dev/null)

BIN := .venv/bin
PYTHON := $(BIN)/python
ARCH := $(shell uname -m)
# The oldest glibc the preload library must load on (docs/architecture.md, "Building the library").
GLIBC := 2.17
STUB := build/stub
# Drivers of older CUDA versions, in folders of the stub: they lack newer exports.
OLDER_DRIVERS := 11.8 12.2 12.8 13.0
# Of the extension module and the stub (Cargo.toml); what is measured is the release's.
PROFILE := testing
bench bench-scheduler bench-node bench-hook: PROFILE := release

# Two test processes (tests/support/parallel.py); more arguments for pytest are given by `make test ARGS="-k name"`.
ARGS :=
PYTEST := $(PYTHON) -m pytest -n 2

HEADERS := --cache $(CACHE)/headers --pip $(UV_HOME)/bin/pip

# require(command, what it is for, the line that installs it)
require = command -v $(1) >/dev/null || { \
	echo "missing: $(1) ($(2)); install it with: $(3)" >&2; exit 1; }
# at_least(version, the oldest that works, whose version, what to do): an empty version counts as too old
at_least = [ "$$(printf '%s\n' $(2) "$(1)" | sort -V | head -n 1)" = $(2) ] || { \
	echo "$(3) is '$(1)', needed is $(2) or newer; $(4)" >&2; exit 1; }

# package(Debian package): installs it, if apt-get can
package = [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	echo "installing $(1) with apt-get" && apt-get -qq update && \
	DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $(1) >/dev/null

# provide(command, Debian package): installs it, or fails with the command that installs it
provide = command -v $(1) >/dev/null || { $(call package,$(2)); } || { \
	echo "missing: $(1); install it with: apt-get install $(2)" >&2; exit 1; }

# provide_library(its file's name, Debian package): as provide
provide_library = /sbin/ldconfig -p | grep -F $(1) >/dev/null || { $(call package,$(2)); } || { \
	echo "missing: $(1); install it with: apt-get install $(2)" >&2; exit 1; }

# offer(command, Debian package): as provide, but without it only its tests fail or are skipped
offer = command -v $(1) >/dev/null || { $(call package,$(2)); } || \
	echo "NOT TESTED: $(1) is not here; install it with: apt-get install $(2)" >&2

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

.PHONY: setup clients
setup: .venv/.complete ## the tools and the Python environment, all versions locked

.PHONY: tools
tools:
	@$(call require,gcc,a C compiler,apt-get install gcc libc6-dev)
	@$(call require,python3,Python 3.10 or newer,apt-get install python3 python3-venv)
	@$(call require,cargo,Rust 1.88 or newer,see https://rustup.rs)
	@$(call at_least,$$(rustc --version | cut -d' ' -f2),1.88.0,Rust,run: rustup default stable && rustup update)
	@$(call at_least,$$(python3 -c 'import platform; print(platform.python_version())'),3.10,Python,apt-get install python3)
	@python3 -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "missing: Python's venv; install it with: apt-get install python3-venv" >&2; exit 1; }

$(UV): | tools
	@echo "downloading uv $(UV_VERSION) from PyPI (35 MB) to $(UV_HOME)"
	@python3 -m venv $(UV_HOME)
	@$(UV_HOME)/bin/python -m pip --quiet install uv==$(UV_VERSION)

sync = $(UV) sync --quiet --frozen --inexact

.venv/.demo: pyproject.toml uv.lock | tools $(UV)
	@echo "downloading what builds hami-py, and the programs of the demo, from PyPI (200 MB)"
	@$(sync) --no-default-groups --group build --group demo
	@touch $@

.venv/.clients: .venv/.demo
	@echo "downloading the other CUDA programs of the tests from PyPI (200 MB)"
	@$(sync) --no-default-groups --group build --group clients
	@touch $@

.venv/.complete: .venv/.demo
	@echo "downloading all programs and tools of the tests from PyPI (300 MB)"
	@$(sync) --extra kubernetes --group clients
	@touch $@

clients: .venv/.clients ## the CUDA programs that the demo can show too

# No path of this machine is in what is released, so that all clones of a commit make the same bytes.
interposer hook wheel: export RUSTFLAGS = --remap-path-prefix=$(CURDIR)=/hami-py \
	--remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo

# The linker leaves a core idle, so parts that do not share a target are built at once.
.PHONY: build
build: ## the extension module, the preload library, the hook and the stub GPU
	@$(MAKE) --no-print-directory --jobs=3 interposer stub native hook

.PHONY: native
native: .venv/.demo
	@PATH="$(UV_HOME)/bin:$$PATH" VIRTUAL_ENV=.venv $(BIN)/maturin develop --uv --quiet --profile $(PROFILE)

# zig compiles its unwinder at the first link, with the names of its folder and of the current one in the
# debug information. It finds the result again whatever these were, so it has a cache of its own here.
ZIG = PWD=/proc/self/cwd ZIG_LIB_DIR=/proc/self/cwd/build/zig ZIG_GLOBAL_CACHE_DIR=$(CACHE)/zig

.PHONY: interposer
interposer: .venv/.demo
	@mkdir -p build hami_py/lib
	@ln -sfn $$($(PYTHON) -c 'import ziglang; print(ziglang.__path__[0])')/lib build/zig
	@$(ZIG) PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cargo-zigbuild zigbuild --quiet --package vgpu --release \
		--target $(ARCH)-unknown-linux-gnu.$(GLIBC)
	@install -m 755 target/$(ARCH)-unknown-linux-gnu/release/libvgpu.so hami_py/lib/libvgpu.so

# The programs of a node are linked with other C libraries, so the hook has its own.
.PHONY: hook
hook: | tools
	@cargo rustc --quiet --release --package hami-hook -- \
		-C target-feature=+crt-static -C relocation-model=static -C strip=symbols
	@mkdir -p hami_py/lib
	@install -m 755 target/release/hami-hook hami_py/lib/hami-hook

.PHONY: stub
stub: | tools
	@cargo build --quiet --profile $(PROFILE) -p stub-libcuda -p stub-libnvidia-ml -p stub-gpu -p stub-clock
	@mkdir -p $(STUB)
	@install -m 755 target/$(PROFILE)/libcuda.so $(STUB)/libcuda.so.1
	@ln -sf libcuda.so.1 $(STUB)/libcuda.so
	@install -m 755 target/$(PROFILE)/libnvidia_ml.so $(STUB)/libnvidia-ml.so.1
	@install -m 755 target/$(PROFILE)/stub-gpu $(STUB)/stub-gpu
	@install -m 755 target/$(PROFILE)/libstub_clock.so $(STUB)/libstub-clock.so
	@for version in $(OLDER_DRIVERS); do \
		tests/stub/link-older-driver target/$(PROFILE) $$version $(STUB)/$$version; \
	done

.PHONY: demo
demo: build ## real CUDA programs under a limit, on this machine's GPU or on the stub
	@PYTHONPATH=tests $(PYTHON) -m clients.demo

.PHONY: demo-cluster
demo-cluster: .venv/.complete build wheel test-cluster-tools ## CUDA programs in limited pods on a real Kubernetes, on the stub; needs root
	@[ "$$(id -u)" = 0 ] || { echo "a node needs root: run make demo-cluster as root" >&2; exit 1; }
	@PYTHONPATH=tests $(PYTHON) -m cluster.demo

.PHONY: test-tools
test-tools:
	@$(call provide,strace,strace)
	@$(call provide,readelf,binutils)
	@$(call provide,musl-gcc,musl-tools)
	@$(call provide,valgrind,valgrind)
	@$(call provide,heaptrack,heaptrack)
	@$(call provide_library,libjemalloc.so.2,libjemalloc2)
	@$(call provide_library,libtcmalloc_minimal.so.4,libtcmalloc-minimal4)
	@$(call offer,mkfs.xfs,xfsprogs)
	@$(call offer,mkfs.btrfs,btrfs-progs)
	@$(call offer,bindfs,bindfs)
	@$(call offer,fuse-overlayfs,fuse-overlayfs)

# Large packages, and those that only these tests need.
.PHONY: test-large-tools
test-large-tools:
	@$(call offer,podman,podman crun)
	@$(call offer,cron,cron)
	@$(call offer,newuidmap,uidmap)
	@PATH="$$PATH:/usr/sbin" && $(call offer,dockerd,docker.io)
	@$(call offer,slurmctld,slurmctld slurmd slurm-client munge)
	@$(call offer,shellcheck,shellcheck)
	@$(call offer,ffmpeg,ffmpeg)
	@$(call offer,hashcat,hashcat)
	@$(call offer,npm,npm)
	@$(call offer,mmdebstrap,mmdebstrap)
	@$(call offer,chromium,chromium)
	@$(call offer,chromedriver,chromium-driver)

# Only root can start a node, so only root needs the programs of one.
ROOT := $(filter 0,$(shell id -u))

.PHONY: test-cluster-tools
test-cluster-tools: ## Kubernetes for the tests, built once per version into the user's cache (Go 1.26)
	@$(call require,go,Go 1.26 builds Kubernetes,see https://go.dev/dl/)
	@PYTHONPATH=tests python3 -m cluster.binaries control-plane controllers kubectl helm helm3 prometheus $(if $(ROOT),node toolkit) >/dev/null
	@$(if $(ROOT),$(MAKE) --no-print-directory test-node-tools)

.PHONY: test-node-tools
test-node-tools:
	@$(call provide,ip,iproute2)
	@$(call provide,runc,runc)
	@$(call provide,busybox,busybox-static)
	@[ -x /usr/lib/cni/ptp ] || { $(call package,containernetworking-plugins); } || { \
		echo "missing: CNI plugins; install them with: apt-get install containernetworking-plugins" >&2; exit 1; }

# tests/support/tiers.py defines the tiers, and every count that differs between them.
.PHONY: test
test: .venv/.complete build test-tools test-rust ## the fast tests, of all parts; neither a GPU nor Kubernetes is needed
	@$(PYTEST) --tier fast $(ARGS)

.PHONY: test-rust
test-rust: | tools
	@cargo test --quiet --workspace

.PHONY: test-cluster
test-cluster: .venv/.complete test-cluster-tools build wheel gpu-pods-folders test-tools test-large-tools ## the other tests that CI runs, most of them on a real Kubernetes
	@$(PYTEST) --tier ci $(ARGS)

.PHONY: torture
torture: .venv/.complete test-cluster-tools build wheel gpu-pods-folders test-tools test-large-tools test-rust ## all tests with their full counts; about an hour
	@$(call offer,buildah,buildah)
	@$(PYTEST) --tier torture $(ARGS)

.PHONY: lint
lint: .venv/.complete build ## formatting, warnings, types, import layers, generated files
	@cargo fmt --all --check
	@cargo clippy --quiet --workspace --all-targets -- --deny warnings
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary
	@MYPYPATH=tests $(BIN)/mypy --no-error-summary --explicit-package-bases --package cluster --package histories
	@$(PYTHON) -m mypy.stubtest hami_py._native
	@$(BIN)/lint-imports --no-cache
	@$(PYTHON) interposer/sys/generate --check $(HEADERS)
	@PYTHONPATH=tests $(PYTHON) -m cluster.manifests --check

.PHONY: gen
gen: .venv/.complete ## regenerate what is derived from NVIDIA's headers and the kubelet's interfaces
	@$(PYTHON) interposer/sys/generate $(HEADERS)
	@PYTHONPATH=tests $(PYTHON) -m cluster.interfaces
	@cargo fmt --all

.PHONY: manifests
manifests: .venv/.complete build ## write what is made of the chart and of the code: deploy/ for kustomize, dashboards, a page of docs
	@PYTHONPATH=tests $(PYTHON) -m cluster.manifests

.PHONY: bench
bench: .venv/.complete build ## measure what docs/results/ claims
	@$(call provide,valgrind,valgrind)
	@$(sync) --extra kubernetes --group clients --group bench
	@PYTHONPATH=tests $(PYTHON) -m bench calls share start overview

.PHONY: screenshots
screenshots: .venv/.complete build test-large-tools ## draw the pictures in docs/images: the web view, hami top, kubectl hami inspect
	@PYTHONPATH=tests $(PYTHON) -m bench.screenshots

.PHONY: check-times
check-times: .venv/.complete build ## how long lint and the tests take, and the slowest; an hour, with nothing else to do
	@PYTHONPATH=tests $(PYTHON) -m bench.check $(ARGS)

.PHONY: check-fresh
check-fresh: ## what `make demo` and `make test` take on a machine that has nothing of ours; half an hour
	@$(call require,git,a version control system,apt-get install git)
	@$(call require,cargo,Rust 1.88 or newer,see https://rustup.rs)
	@$(call require,python3,Python 3.10 or newer,apt-get install python3 python3-venv)
	@$(if $(ROOT),$(call provide,mmdebstrap,mmdebstrap))
	@PYTHONPATH=tests python3 -m bench.fresh

.PHONY: bench-scheduler
bench-scheduler: .venv/.complete build test-cluster-tools ## the same of the control plane: a large cluster, a real API server; 15 minutes
	@$(call provide,taskset,util-linux)
	@cargo build --quiet --release --package hami-allocator --example scale
	@PYTHONPATH=tests $(PYTHON) -m bench scheduler

.PHONY: bench-node
bench-node: .venv/.complete build wheel test-cluster-tools ## the same of the node agent: a real node, with hami and without; 15 minutes, needs root
	@[ "$$(id -u)" = 0 ] || { echo "a node needs root: run make bench-node as root" >&2; exit 1; }
	@PYTHONPATH=tests $(PYTHON) -m bench node

.PHONY: bench-hook
bench-hook: .venv/.complete build wheel test-cluster-tools ## the same of the hook that waits for the driver's limit: a real node; five minutes, needs root
	@[ "$$(id -u)" = 0 ] || { echo "a node needs root: run make bench-hook as root" >&2; exit 1; }
	@PYTHONPATH=tests $(PYTHON) -m bench hook

# In a folder of its own: maturin and cargo-zigbuild have other linkers, and cargo would compile all again for each.
.PHONY: bench-machine
bench-machine: .venv/.complete build ## the same of the service of a machine with several users; two minutes, needs root
	@[ "$$(id -u)" = 0 ] || { echo "the service needs root: run make bench-machine as root" >&2; exit 1; }
	@PYTHONPATH=tests $(PYTHON) -m bench machine

# The bill of materials in the wheel.
CRATES := build/hami-py-rust.cdx.json

.PHONY: wheel
wheel: interposer hook ## one wheel for every CPython from 3.10, in dist/
	@$(PYTHON) deploy/bills.py $(VERSION) $(EPOCH) $(CRATES)
	@PATH="$(CURDIR)/$(BIN):$$PATH" SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/maturin build --quiet --release --zig \
		--compatibility manylinux2014 --sbom-include $(CRATES) --target-dir $(CARGO_TARGET_DIR)/wheel --out dist

# The full name of the image `hami-py` in deploy/. With IMAGE=registry.example/hami-py it can be pushed. BASE is
# another base, and IMAGE_FLAGS are more arguments of the builder.
IMAGE := docker.io/library/hami-py
BASE :=
IMAGE_FLAGS :=
IMAGE_CONTEXT := build/image
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
REVISION = $(or $(shell git describe --always --dirty --abbrev=40 --match= 2>/dev/null),unknown)
# The time of all files and of the image, so that two builds of a commit are the same.
EPOCH = $(or $(shell git log -1 --format=%ct 2>/dev/null),0)

# `info` fails where the program is there and its daemon is not.
BUILDER = $(shell for each in docker podman nerdctl buildah; do \
	if $$each info >/dev/null 2>&1; then echo $$each; break; fi; done)

# In a chroot, buildah needs no container runtime.
BUILD_FLAGS_buildah = --isolation chroot --timestamp $(EPOCH)
BUILD_FLAGS_podman = --timestamp $(EPOCH)
build_image = $(BUILDER) build $(BUILD_FLAGS_$(BUILDER))

# The wheel takes minutes, so a missing builder is reported before it is built.
.PHONY: builder
builder:
	@[ -n "$(BUILDER)" ] || { $(call package,buildah); } || { \
		echo "missing: docker, podman, nerdctl or buildah, and where it has a daemon, that it" \
			"answers; install one with: apt-get install buildah" >&2; exit 1; }

.PHONY: image
image: builder wheel ## the container image that the chart takes, with docker, podman, nerdctl or buildah
	@rm -rf $(IMAGE_CONTEXT) && mkdir -p $(IMAGE_CONTEXT)
	@cp dist/hami_py-$(VERSION)-*.whl $(IMAGE_CONTEXT)
	@$(UV) export --quiet --frozen --no-default-groups --extra kubernetes --no-emit-project \
		--no-header --no-annotate --output-file $(IMAGE_CONTEXT)/requirements.txt
	@$(build_image) --file deploy/image/Dockerfile --tag $(IMAGE):$(VERSION) \
		--build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) \
		$(if $(BASE),--build-arg BASE=$(BASE)) $(IMAGE_FLAGS) $(IMAGE_CONTEXT)

ARCHIVE = dist/hami-py-$(VERSION)-image.tar
SAVE = $(BUILDER) save --output $(ARCHIVE) $(IMAGE):$(VERSION)
SAVE_buildah = buildah push --quiet $(IMAGE):$(VERSION) docker-archive:$(ARCHIVE):$(IMAGE):$(VERSION)

.PHONY: image-archive
image-archive: image ## the image as a file in dist/, for ctr images import, docker load and podman load
	@rm -f $(ARCHIVE)
	@$(or $(SAVE_$(BUILDER)),$(SAVE))
	@du --apparent-size --human-readable $(ARCHIVE)

# Where the files of a release will be, for krew.
RELEASE_URL := https://releases.example/hami-py/$(VERSION)

# The SSH key that signs a release, or the public one of a key that ssh-agent holds.
SIGN :=

.PHONY: committed
committed:
	@[ -z "$$(git status --porcelain)" ] || { \
		echo "commit all changes first: the provenance of a signed release names a commit" >&2; exit 1; }

.PHONY: release
release: $(if $(SIGN),committed) image-archive ## the files of a release in dist/, with their sums, signed with SIGN=KEY; needs a builder of images, and Go for helm
	@$(call require,go,Go 1.26 builds helm,see https://go.dev/dl/)
	@$(PYTHON) deploy/release.py --version $(VERSION) --epoch $(EPOCH) --dist dist --uv $(UV) --url $(RELEASE_URL) \
		$(if $(SIGN),--sign $(SIGN)) --builder "$$($(BUILDER) --version)" \
		--variables "$(strip RELEASE_URL=$(RELEASE_URL) IMAGE=$(IMAGE) $(if $(BASE),BASE=$(BASE)))" --helm $$(PYTHONPATH=tests python3 -m cluster.binaries helm)/helm

# Debian's release with the Python of the usual base.
DEBIAN := trixie
DEBIAN_BASE := localhost/hami-py/debian:$(DEBIAN)
NO_PAGES := $(foreach each,doc info lintian locale man,--dpkgopt='path-exclude=/usr/share/$(each)/*')

.PHONY: image-base
image-base: builder ## a base of Debian's packages, where no registry is reached; needs root, then make image BASE=…
	@$(call provide,mmdebstrap,mmdebstrap)
	@rm -rf $(IMAGE_CONTEXT) && mkdir -p $(IMAGE_CONTEXT)
	@SOURCE_DATE_EPOCH=0 mmdebstrap --quiet --variant=essential --include=python3,python3-pip,libstdc++6 $(NO_PAGES) \
		$(DEBIAN) $(IMAGE_CONTEXT)/base.tar
	@$(build_image) --file deploy/image/base.Dockerfile --tag $(DEBIAN_BASE) $(IMAGE_CONTEXT)
	@echo "built; now: make image BASE=$(DEBIAN_BASE)"

GPU_KIT := build/gpu-kit

.PHONY: gpu-kit
gpu-kit: stub wheel ## one folder that tests and measures us on any machine with a GPU
	@PYTHONPATH=tests $(PYTHON) -m gpu.kit --uv $(UV) --pip $(UV_HOME)/bin/pip \
		--cache $(CACHE)/gpu-kit-wheels --output $(GPU_KIT)

# A cluster that travels: its folders link to the cache, its archives (`gpu-pods`) hold the same files.
GPU_PODS := build/gpu-pods
pack = PYTHONPATH=tests $(PYTHON) -m gpu.pods.pack --uv $(UV) --pip $(UV_HOME)/bin/pip \
	--cache $(CACHE)/gpu-kit-wheels --output $(GPU_PODS)

.PHONY: gpu-pods-folders
gpu-pods-folders: native gpu-kit test-cluster-tools
	@$(if $(ROOT),$(pack))

.PHONY: gpu-pods
gpu-pods: native gpu-kit test-cluster-tools ## a cluster for the kit's part `pods`, in three archives; needs root
	@[ -n "$(ROOT)" ] || { echo "a node needs root: run make gpu-pods as root" >&2; exit 1; }
	@$(pack) --archives

# On this machine's GPU; where there is none that is said, and nothing is pretended.
on_gpu = status=0; python3 $(GPU_KIT)/run.py $(1) --out build/gpu-results || status=$$?; \
	[ $$status = 3 ] || exit $$status

.PHONY: test-gpu
test-gpu: gpu-kit ## the tests of the kit on this machine's GPU, if it has one
	@$(call on_gpu,test)

.PHONY: bench-gpu
bench-gpu: gpu-kit ## what the driver takes and what we cost, on this machine's GPU, if it has one
	@$(call on_gpu,bench)

.PHONY: clean
clean: ## everything that was built here
	@rm -rf target build dist .venv hami_py/lib hami_py/*.so
