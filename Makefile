# One door for people and CI. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.installed-runtime
STAMP := $(VENV)/.installed
ACCURACY_ROWS ?= tests/accuracy/ground_truth.yaml
# Where pip looks for torch before PyPI, whose wheels for Linux bring CUDA along.
TORCH_INDEX ?=

.DEFAULT_GOAL := help

help: ## List the targets
	@grep -hE '^[a-z][a-z0-9-]*:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

# Byte code is compiled once at installation, since some environments never write it and would compile at each start.
define install
	@test -x $(BIN)/python || { echo "Making a virtual environment in $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@echo "Installing projection-operator $(2) ..."
	$(if $(and $(TORCH_INDEX),$(findstring dev,$(1))),@$(BIN)/python -m pip install --quiet --disable-pip-version-check --index-url $(TORCH_INDEX) torch)
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(1)]'
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m compileall -q projector operator
	@touch $@
endef

$(RUNTIME): pyproject.toml
	$(call install,cluster,and what a control plane needs)

$(STAMP): $(RUNTIME)
	$(call install,dev,and everything its tests need (torch is a large download))

install: $(STAMP) ## Make the virtual environment with everything that the other targets need

run: $(RUNTIME) ## Answer the sample ProjectionRequest on a real control plane and print its status and metrics
	$(BIN)/python -m tests.cluster.demo

test: lint test-unit accuracy test-cluster test-kubelet ## Run everything that can run on this machine; says what it skipped and why

test-unit: $(STAMP) ## Run the tests that need no cluster
	$(BIN)/python -m pytest tests --ignore=tests/cluster --ignore=tests/kubelet --numprocesses=auto --dist=loadgroup

test-cluster: $(STAMP) ## Run the tests on a real etcd, API server, controller manager and scheduler
	$(BIN)/python -m pytest tests/cluster

test-kubelet: $(STAMP) ## Run the tests on a real kubelet and containerd (needs root)
	$(BIN)/python -m pytest tests/kubelet

accuracy: $(STAMP) ## Score the engine against published measurements
	$(BIN)/python -m tests.accuracy --rows $(ACCURACY_ROWS)

bench: $(STAMP) ## Time the command and the engine; prints ratios and absolute figures
	$(BIN)/python -m tests.bench

lint: $(STAMP) ## Check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

images: ## Build the container images with docker, podman or buildah; TAG and BUILD_FLAGS go to the builder
	images/build.sh "$(TAG)" $(BUILD_FLAGS)

docs: $(STAMP) ## Regenerate the reference pages
	$(BIN)/python -m docs

cluster-up: $(RUNTIME) ## Start a control plane and leave it running; prints its kubeconfig
	$(BIN)/python -m tests.cluster.controlplane up

cluster-down: $(RUNTIME) ## Stop what cluster-up started
	$(BIN)/python -m tests.cluster.controlplane down

kind-up: $(RUNTIME) ## Start a kind cluster (needs Docker)
	$(BIN)/python -m tests.cluster.controlplane kind-up

kind-e2e: $(RUNTIME) ## Run the cluster tests in kind (needs Docker)
	@docker info >/dev/null 2>&1 || exec $(BIN)/python -m tests.cluster.controlplane kind-up
	@$(MAKE) --no-print-directory $(STAMP)
	$(BIN)/python -m tests.cluster.controlplane kind-e2e

kind-down: $(RUNTIME) ## Delete the kind cluster
	$(BIN)/python -m tests.cluster.controlplane kind-down

.PHONY: help install run test test-unit test-cluster test-kubelet accuracy bench lint images docs cluster-up cluster-down kind-up kind-e2e kind-down
