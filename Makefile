# make demo, make test: each sets up .venv by itself when it is missing or stale. The rest is in CONTRIBUTING.md.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
BUILD  := scikit-build-core nanobind ninja cmake

NATIVE := $(shell find native -type f \( -name '*.cpp' -o -name '*.h' -o -name '*.inc' \))
FUZZ   := $(wildcard fuzz/*.cpp fuzz/*.h)

.DEFAULT_GOAL := help
.PHONY: help demo tour test check mutants bench bench-steps goldens goldens-dropin models versions wheels cross arm docs format lint clean

help:
	@echo "make demo      train a small network on handwritten digits, from one ONNX file to another"
	@echo "make tour      run every kernel in both hosts and compare it with its reference"
	@echo "make test      run the tests"
	@echo "make check     sanitizers, every instruction set, property tests, comparisons with PyTorch (slow)"
	@echo "make mutants   plant mistakes in the package and see whether a test notices each (slow)"
	@echo "make bench     compare speed with PyTorch and onnxruntime-training 1.19.2"
	@echo "make wheels    build the wheels and the source archive, check them, try them on every Python that is found"
	@echo "make versions  run the cases with those wheels in Python 3.10 to 3.14, onnxruntime 1.19 to the newest"
	@echo "make cross     compile for Linux, macOS and Windows on x86-64 and ARM"
	@echo "make arm       run the kernels on an emulated ARM processor"

# ---- the environment

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "onnxgrad needs Python 3.10 or newer, and '$(PYTHON)' was not found"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "onnxgrad needs Python 3.10 or newer; name one with make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "could not make $(VENV): Python's venv module is missing (on Debian: apt install python3-venv)"; rm -rf $(VENV); exit 1; }

$(VENV)/tools: $(VENV)/bin/python pyproject.toml
	@echo "installing build tools into $(VENV)"
	@$(RUN) -m pip install -qq --disable-pip-version-check $(BUILD)
	@touch $@

# Installed in place: Python files are used as they are, the native libraries are built anew when their sources change.
$(VENV)/ready: $(VENV)/tools pyproject.toml CMakeLists.txt $(NATIVE)
	@WERROR=$(WERROR) ONNXGRAD_LEVELS='$(ONNXGRAD_LEVELS)' $(RUN) tools/build.py
	@touch $@

# What the tests and the tools need beyond that: the extra `test` of pyproject.toml.
$(VENV)/tested: $(VENV)/ready pyproject.toml
	@echo "installing what the tests need"
	@$(RUN) tools/extra.py test > $(VENV)/test.txt
	@$(RUN) -m pip install -qq --disable-pip-version-check -r $(VENV)/test.txt
	@touch $@

# ---- what people run

demo: $(VENV)/ready
	@$(VENV)/bin/onnxgrad demo $(DEMO)

tour: $(VENV)/tested
	@$(RUN) tests/tour.py

test: $(VENV)/tested
	$(RUN) -m pytest -n auto --dist loadgroup

# ---- what engineers run

check: $(VENV)/tested
	@$(RUN) tools/check.py

# MUTANTS="--count 300 --seed 2"; the first time it records which lines every test runs.
mutants: $(VENV)/tested
	@test -d build/mutants/recording || $(RUN) tools/mutants record
	@$(RUN) tools/mutants planted
	@$(RUN) tools/mutants random $(MUTANTS)

bench: $(VENV)/tested
	@$(RUN) bench/run.py --output bench/results/latest.json $(BENCH)
	@$(RUN) bench/chart.py bench/results/latest.json docs/speed.svg
	@$(RUN) bench/table.py bench/results/latest.json docs/speed.md

# STEPS="--torch python" for an environment of one's own, STEPS=--busy on a machine that does other work
bench-steps: $(VENV)/tested
	@$(RUN) bench/steps.py $(STEPS)

goldens: $(VENV)/tested
	@$(RUN) tests/golden/record.py $(OPS)

goldens-dropin: $(VENV)/tested
	@$(RUN) tests/dropin/record_artifacts.py $(NETS)

models: $(VENV)/tested
	@$(RUN) tools/check_models.py $(MODELS)

# WHEELS="--python 3.12 --no-try"
wheels: $(VENV)/tools
	@$(RUN) tools/wheels.py $(WHEELS)

# The wheels of dist/; VERSIONS="--quick 3.12"
versions: $(VENV)/tools
	@test -d dist || $(RUN) tools/wheels.py --no-try
	@$(RUN) tools/try_versions.py $(VERSIONS)

cross: $(VENV)/tools
	@$(RUN) tools/cross.py $(CROSS)

arm: $(VENV)/ready
	@$(RUN) tools/arm.py $(ARM)

docs: $(VENV)/tested
	@$(RUN) tools/make_docs.py

lint: $(VENV)/tested
	$(RUN) -m ruff check . && $(RUN) -m ruff format --check .
	$(VENV)/bin/clang-format --dry-run -Werror $(NATIVE) $(FUZZ)

format: $(VENV)/tested
	$(RUN) -m ruff check --fix -q . && $(RUN) -m ruff format -q .
	$(VENV)/bin/clang-format -i $(NATIVE) $(FUZZ)

clean:
	rm -rf $(VENV) .envs build dist
