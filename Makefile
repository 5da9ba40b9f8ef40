# make demo     select features on a real data set, say where the report is
# make test     every module's own tests: some minutes; WORKERS=1 for one process, else one a processor
# make test-all the others, which take longer: whole programs, killed processes, full disks, the browser, the site
# make fuzz     many more cases of the property tests: odd numbers, damaged files
# make faults   end the commands by signals at random moments, fifty times each, and go on
# make coverage all tests, and the branches of the source that none of them takes
# make mutants  changes of the core that no test of `make test` notices, of four hundred
# make docs     build the site in docs/_build/html
# make test-oldest  set up .venv-oldest with the oldest packages that we support, run the tests of the estimators
# make figures  draw the figures of the docs; HOMOPHILY_DATA=folder names the data sets
# make lint     format and type checks
# make clean    remove what these made
#
# Each sets up .venv as far as it needs it, and only the first time.

PYTHON ?= python3
WORKERS ?= auto
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
PIP := -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
PARALLEL := -n $(WORKERS) --maxprocesses 8 --dist worksteal

.PHONY: setup demo test test-all fuzz faults coverage mutants test-oldest docs figures lint format clean

setup: $(VENV)/.system-ready $(VENV)/.lint-ready

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "homophily needs Python 3.11 or newer, and '$(PYTHON)' was not found."; \
	  echo "Install it, or name another: make PYTHON=/path/to/python3.11 demo"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "homophily needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1)."; \
	  echo "Name a newer one: make PYTHON=/path/to/python3.11 demo"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' lacks the venv module; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# The runtime alone, then what the tests, the site and the checks need beside it.
$(VENV)/.demo-ready: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (a few minutes the first time) ..."
	@$(BIN)/python $(PIP) -c constraints.txt -e .
	@touch $@

$(VENV)/.%-ready: $(VENV)/.demo-ready
	@echo "Adding the extra '$*' to $(VENV) ..."
	@$(BIN)/python $(PIP) -c constraints.txt -e '.[$*]'
	@touch $@

demo: $(VENV)/.demo-ready
	@$(BIN)/python examples/wine_csv.py demo/wine.csv
	@$(BIN)/homophily select demo/wine.csv -m 5 --label-column cultivar --seed 0 --out demo/wine-selected --overwrite

test: $(VENV)/.test-ready
	@$(PYTEST) $(PARALLEL) -m "not slow" --ignore=tests/system

test-all: $(VENV)/.system-ready
	@$(PYTEST) $(PARALLEL) -m slow

fuzz: $(VENV)/.test-ready
	@HOMOPHILY_FUZZ=10 $(PYTEST) tests/test_numbers.py tests/test_reader_fuzz.py

faults: $(VENV)/.system-ready
	@HOMOPHILY_FAULTS=50 $(PYTEST) -s tests/system/test_faults.py

coverage: $(VENV)/.system-ready
	@$(BIN)/python -m coverage erase
	@$(BIN)/python -m coverage run -m pytest $(PARALLEL)
	@-$(BIN)/python -m coverage combine --quiet  # processes that tests killed leave data that cannot be read
	@$(BIN)/python -m coverage report

mutants: $(VENV)/.test-ready
	@$(BIN)/python benchmarks/mutation.py --sample 400 --least 85

docs: $(VENV)/.docs-ready
	@$(BIN)/python -m sphinx -q -E -W --keep-going docs docs/_build/html
	@echo "Built docs/_build/html/index.html"

test-oldest: $(OLDEST)/.ready
	@$(OLDEST)/bin/python -m pytest tests/test_joint.py tests/test_selectors.py tests/test_baselines.py \
	  tests/test_frames.py tests/test_sparse.py tests/test_sklearn.py

$(OLDEST)/.ready: pyproject.toml constraints-oldest.txt
	@echo "Setting up $(OLDEST) (a few minutes the first time) ..."
	@$(PYTHON) -m venv $(OLDEST)
	@$(OLDEST)/bin/python $(PIP) -c constraints-oldest.txt \
	  -e . pytest hypothesis polars
	@touch $@

figures: $(VENV)/.demo-ready
	@$(BIN)/homophily reproduce figures --out results
	@cp results/figures/*.png docs/figures/

lint: $(VENV)/.lint-ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/.lint-ready
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(OLDEST) demo docs/_build docs/gallery docs/api/generated results/figures artefacts .pytest_cache .mypy_cache .ruff_cache .hypothesis
