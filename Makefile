# make demo     set up .venv, select features on a real data set, say where the report is
# make test     set up .venv, run the tests
# make fuzz     many more cases of the property tests: odd numbers, damaged files
# make faults   end the commands by signals at random moments, fifty times each, and go on
# make coverage the tests, and the branches of the source that none of them takes
# make mutants  changes of the core that no test notices, of four hundred
# make docs     set up .venv, build the site in docs/_build/html
# make test-oldest  set up .venv-oldest with the oldest packages that we support, run the tests of the estimators
# make figures  draw the figures of the docs; HOMOPHILY_DATA=folder names the data sets
# make lint     format and type checks
# make clean    remove what these made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OLDEST := .venv-oldest

.PHONY: setup demo test fuzz faults coverage mutants test-oldest docs figures lint format clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "homophily needs Python 3.11 or newer, and '$(PYTHON)' was not found."; \
	  echo "Install it, or name another: make PYTHON=/path/to/python3.11 demo"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "homophily needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1)."; \
	  echo "Name a newer one: make PYTHON=/path/to/python3.11 demo"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' lacks the venv module; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@echo "Setting up $(VENV) (a few minutes the first time) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/python examples/wine_csv.py demo/wine.csv
	@$(BIN)/homophily select demo/wine.csv -m 5 --label-column cultivar --seed 0 --out demo/wine-selected --overwrite

test: $(READY)
	@$(BIN)/python -m pytest

fuzz: $(READY)
	@HOMOPHILY_FUZZ=10 $(BIN)/python -m pytest tests/test_numbers.py tests/test_reader_fuzz.py

faults: $(READY)
	@HOMOPHILY_FAULTS=50 $(BIN)/python -m pytest -s tests/system/test_faults.py

coverage: $(READY)
	@$(BIN)/python -m coverage erase
	@$(BIN)/python -m coverage run -m pytest
	@-$(BIN)/python -m coverage combine --quiet  # processes that tests killed leave data that cannot be read
	@$(BIN)/python -m coverage report

mutants: $(READY)
	@$(BIN)/python benchmarks/mutation.py --sample 400 --least 85

docs: $(READY)
	@$(BIN)/python -m sphinx -q -E -W --keep-going docs docs/_build/html
	@echo "Built docs/_build/html/index.html"

test-oldest: $(OLDEST)/.ready
	@$(OLDEST)/bin/python -m pytest tests/test_joint.py tests/test_selectors.py tests/test_baselines.py \
	  tests/test_frames.py tests/test_sparse.py tests/test_sklearn.py

$(OLDEST)/.ready: pyproject.toml constraints-oldest.txt
	@echo "Setting up $(OLDEST) (a few minutes the first time) ..."
	@$(PYTHON) -m venv $(OLDEST)
	@$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-oldest.txt \
	  -e . pytest hypothesis polars
	@touch $@

figures: $(READY)
	@$(BIN)/homophily reproduce figures --out results
	@cp results/figures/*.png docs/figures/

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(OLDEST) demo docs/_build docs/gallery docs/api/generated results/figures artefacts .pytest_cache .mypy_cache .ruff_cache .hypothesis
