# Everything a newcomer needs: `make demo`, `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RUN    ?= runs/demo
SST2   ?= data/sst2
MINUTES ?= 60
SOAK   ?= soak

.PHONY: help install demo test lint types imports unit coverage docs docs-serve soak compiled dist bench-textattack \
        bench clean

help:            ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 18

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing isthmus and what it needs into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

install: $(VENV)/.installed  ## make the virtual environment

demo: install    ## fine-tune a classifier, attack it, write a report (under 5 minutes on two cores)
	@$(BIN)/isthmus assets fetch minilm rotten_tomatoes wordnet
	@$(BIN)/isthmus train --data rotten_tomatoes --backbone minilm --epochs 1 --out $(RUN)
	@$(BIN)/isthmus evaluate $(RUN)
	@$(BIN)/isthmus attack $(RUN) --attack deepwordbug,pwws --n 200
	@$(BIN)/isthmus report $(RUN)

test: lint types imports docs unit  ## everything CI checks

lint: install    ## ruff
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: install   ## mypy: strict for src and benchmarks, without annotations for tests
	@$(BIN)/mypy

imports: install ## imports run downward only
	@$(BIN)/lint-imports

# Hundreds of tests start a process: without compiled files each of them compiles the package again.
TESTING := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false

unit: install    ## the tests
	@$(TESTING) $(BIN)/pytest -n 2 --dist loadfile

coverage: install ## the tests, and which lines of src they run; fails under the floor in pyproject.toml
	@$(TESTING) $(BIN)/pytest -n 2 --dist loadfile --cov=isthmus --cov-report=term:skip-covered

docs: install    ## the documentation as a site, in build/docs/html; a warning is an error
	@OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -j auto -b html -d build/docs/doctrees docs build/docs/html
	@echo "the site is in build/docs/html"

docs-serve: docs ## the same, shown at http://localhost:8008
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/docs/html 8008

soak: install    ## kills, full disks, damaged files and memory for MINUTES=60; figures in SOAK=soak
	@$(BIN)/python tests/faults/soak.py --minutes $(MINUTES) --out $(SOAK)

compiled:        ## compile the engine's innermost loops beside their source, for a checkout that is not installed
	@$(PYTHON) hatch_build.py

dist: install    ## build the wheel; two builds of one commit with one compiler are the same file, byte for byte
	@$(BIN)/python -m hatchling build -t wheel -d dist && sha256sum dist/*.whl

bench-textattack: ## TextAttack in its own environment, for benchmarks
	@benchmarks/setup_textattack.sh

bench: install   ## attack speed beside TextAttack (SST2=folder of its splits)
	@$(BIN)/python benchmarks/attack_speed.py --data $(SST2)

clean:           ## remove what the build made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist
