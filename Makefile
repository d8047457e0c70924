# adiabat: `make help` lists what there is. The first target that needs .venv builds it from the locked requirements.

PYTHON ?= python3
# auto: the CPU build of torch where pip's own sources hold it, else the index's build. index: always the index's (CUDA on Linux).
TORCH ?= auto
# make lock UPGRADE=1 takes the newest versions; without it pins move only where they must.
UPGRADE ?=
# Passed to pytest, such as PYTEST_ARGS="-x -k freezing".
PYTEST_ARGS ?=
# The suite runs in several processes of one thread each, a file of tests in one of them. TESTERS=0 runs it in one.
TESTERS ?= auto
# Where the tests marked `real` look for their data.
REAL_DATA := ../shared/data

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UV := $(BIN)/uv
LOCKS := $(addprefix requirements/,uv.txt lock.txt torch-cpu.txt torch.txt)
# Rooms whose docstrings have every argument, return value and error.
PUBLIC := api losses scaling_laws stats core/errors.py
TYPED := src $(patsubst %/,%,$(sort $(dir $(wildcard scripts/*.py examples/*.py benchmarks/*.py))))

INSTALL := $(UV) pip install --quiet --python $(BIN)/python --no-deps
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)

.DEFAULT_GOAL := setup
.DELETE_ON_ERROR:
.PHONY: help setup demo check lint types docstrings shape test suite test-shapes test-real lock dist wheel clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Build .venv from the locked requirements (PYTHON=..., TORCH=auto|index)

$(STAMP): $(LOCKS) pyproject.toml
	@test -x $(BIN)/python || { \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "PYTHON must be Python >= 3.11, got $(PYTHON) ($$($(PYTHON) --version 2>&1 | head -n 1)); name one with make PYTHON=python3.12" >&2; exit 1; }; \
	  $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(VENV) must hold Python >= 3.11, got $$($(BIN)/python --version); remove it and run make again" >&2; exit 1; }
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes --no-deps -r requirements/uv.txt
	$(INSTALL) --require-hashes -r requirements/lock.txt
	@if [ "$(TORCH)" = auto ] && $(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes --no-deps \
	    -r requirements/torch-cpu.txt >$(VENV)/torch-cpu.log 2>&1; \
	  then echo "torch: CPU build"; \
	  else echo "torch: the index's build (on Linux several GB of CUDA libraries come with it)"; \
	    $(INSTALL) --require-hashes -r requirements/torch.txt; fi
	$(INSTALL) --no-build-isolation --editable .
	$(UV) pip check --quiet --python $(BIN)/python
	@touch $@

demo: $(STAMP)  ## Tune the embedded model on the embedded data and write a report to runs/demo
	$(BIN)/adiabat demo --out runs/demo

check: lint types docstrings shape  ## Lint and formatting, types, docstrings; how large the code is

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy $(TYPED)

docstrings: $(STAMP)
	$(BIN)/pydoclint --quiet --config=pyproject.toml $(addprefix src/adiabat/,$(PUBLIC))

shape: $(STAMP)  ## Lines, names and functions beside their goals; nothing fails
	@$(BIN)/python scripts/shape.py

# Tests start many processes, each of which would otherwise compile anew what it imports.
test: export PYTHONDONTWRITEBYTECODE :=
# Types take one core for a minute, so tests begin beside them, once everything quicker is right.
test: $(STAMP)  ## The checks, and beside them the default test suite (no network, no real data)
	@$(MAKE) --no-print-directory --jobs 2 check suite

suite: $(STAMP)
	$(BIN)/python -m pytest --numprocesses $(TESTERS) --maxprocesses 4 --dist loadfile $(PYTEST_ARGS)

test-shapes: export ADIABAT_SHAPES := 1
test-shapes: suite  ## The default test suite with the shapes of arrays and tensors checked at each call

# The libraries that call saved models: only what .venv lacks, so that torch and transformers are not there twice (139 MB). The tests
# look for them there; beside the other packages, one of them would be a plugin of every run of pytest.
INTEGRATIONS := $(VENV)/integrations

$(INTEGRATIONS)/.installed: requirements/integrations.txt $(STAMP)
	@rm -rf $(INTEGRATIONS)
	@$(INSTALL) --require-hashes --target $(INTEGRATIONS) -r $< && touch $@ || \
	  echo "LangChain, LlamaIndex and Haystack cannot be installed: their tests are skipped" >&2

# The oldest versions that saved models load in, beside the newest ones of .venv; torch and the like are those of .venv (65 MB).
OLDEST := $(VENV)/oldest

$(OLDEST)/.installed: requirements/oldest.txt $(STAMP)
	@rm -rf $(OLDEST)
	@$(INSTALL) --require-hashes --target $(OLDEST) -r $< && touch $@ || \
	  echo "The oldest versions of the libraries cannot be installed: their tests are skipped" >&2

test-real: $(STAMP) $(INTEGRATIONS)/.installed $(OLDEST)/.installed  ## Tests on real data and real weights; those that miss theirs are skipped with a reason
	@if [ ! -d $(REAL_DATA) ]; then echo "skipped: there is no $(REAL_DATA)"; else \
	  echo "$(BIN)/python -m pytest -m real $(PYTEST_ARGS)"; \
	  $(BIN)/python -m pytest -m real -rs $(PYTEST_ARGS) || { code=$$?; [ $$code -eq 5 ] || exit $$code; }; fi

lock: $(STAMP)  ## Recompile requirements/*.txt (UPGRADE=1 for the newest versions)
	$(COMPILE) pyproject.toml --extra demo --extra faiss --extra languages --extra maps --extra mteb --extra onnx --extra openvino --extra ray --extra serve --extra stemming --extra tensorboard --group dev requirements/torch.in \
	  --excludes requirements/without-cuda.in --no-emit-package torch -o requirements/lock.txt
	@! grep -nE '^(nvidia|cuda|triton)' requirements/lock.txt || { \
	  echo "lock.txt must hold nothing for CUDA; add what is listed above to requirements/without-cuda.in" >&2; exit 1; }
	$(COMPILE) requirements/torch.in --constraints requirements/lock.txt -o requirements/torch.txt
	$(COMPILE) requirements/integrations.in --constraints requirements/lock.txt --excludes requirements/without-cuda.in --no-emit-package torch \
	  $$(sed -nE 's/^([a-z0-9._-]+)==.*/--no-emit-package \1/p' requirements/lock.txt) -o requirements/integrations.txt
	$(COMPILE) requirements/oldest.in --no-deps -o requirements/oldest.txt
	$(COMPILE) requirements/uv.in --constraints requirements/lock.txt -o requirements/uv.txt

dist: $(STAMP)  ## Wheel and source distribution in dist/
	$(BIN)/hatchling build

wheel: $(STAMP)  ## The wheel alone
	$(BIN)/hatchling build -t wheel

clean:  ## Remove caches and built files; .venv and runs/ stay
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks examples scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
