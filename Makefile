# make demo    sets up, trains on the embedded corpus, evaluates, and translates a few sentences
# make test    sets up and passes all tests;  make fast leaves out the slow ones
# make lint    sets up, checks style and types

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test fast lint

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "installing PyTorch and all else into $(VENV): this takes some minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,plot]'
	touch $@

demo: setup
	$(BIN)/transformer train configs/toy.yaml --overwrite
	$(BIN)/transformer evaluate runs/toy
	head -n 8 data/toy/test.en | $(BIN)/transformer translate runs/toy > runs/toy/demo.de
	@echo; echo 'source | reference | translation'; \
	head -n 8 data/toy/test.en | paste -d '|' - data/toy/test.de runs/toy/demo.de | head -n 8 | sed 's/|/ | /g'

test: setup
	$(BIN)/python -m pytest -q -n auto --maxprocesses 8

fast: setup
	$(BIN)/python -m pytest -q -n auto --maxprocesses 8 -m 'not slow'

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
