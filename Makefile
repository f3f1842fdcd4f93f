# Everything runs in .venv, which the first target that needs it makes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Exact versions, checked by their hashes; for other Pythons and systems pip chooses.
LOCK := ci/requirements-py311.lock
# Small matrices are faster on one thread each; pytest-xdist uses the cores.
TEST_ENV := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

.PHONY: help demo studio test test-data test-all coverage fuzz audit test-versions lint format docs package bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | sort

demo: $(READY) ## all methods on digits: a table and a report to open (under 2 minutes)
	$(BIN)/ldsu bench run experiments/digits.toml --store demo/digits.sqlite
	$(BIN)/ldsu bench report experiments/digits.toml --store demo/digits.sqlite --out demo

studio: $(READY) ## label digits in a page
	$(BIN)/python -c 'from pathlib import Path; from PIL import Image; from sklearn.datasets import load_digits; \
		folder = Path("demo/digits"); folder.mkdir(parents=True, exist_ok=True); \
		[Image.fromarray((255 - 15 * pixels).astype("uint8")).save(folder / f"{i:04}.png") for i, pixels in enumerate(load_digits().images)]'
	$(BIN)/ldsu label demo/digits --encoder none --journal demo/digits.labels.jsonl

test: $(READY) ## the tests, doctests included
	$(TEST_ENV) $(BIN)/python -m pytest -n auto

test-data: $(READY) ## only those tests that need the data sets (in LDSU_DATA, or ../shared/data)
	$(TEST_ENV) $(BIN)/python -m pytest -n auto -m "data and not slow"

test-all: $(READY) ## the tests and the slow checks on real data
	$(TEST_ENV) $(BIN)/python -m pytest -n auto -m ""

coverage: $(READY) ## the tests, and which lines they run; fails below the floor in pyproject.toml
	$(TEST_ENV) $(BIN)/python -m pytest -n auto --cov

fuzz: $(READY) ## 10,000 generated inputs and files over all estimators and readers (about 12 minutes)
	LDSU_FUZZ=full $(TEST_ENV) $(BIN)/python -m pytest -n auto -m "" tests/fuzz

audit: ## ask the public list of known vulnerabilities about the locked versions (needs the network)
	ci/audit.sh

test-versions: ## the tests on the oldest and the newest versions, Python 3.11 to 3.13 where they are installed
	ci/versions.sh

lint: $(READY) ## ruff, mypy, codespell, the words of docs/words.toml, and the files for GitHub against their schemas
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/python docs/check_words.py
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff

format: $(READY) ## let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## the documentation site, examples run: site/index.html
	$(BIN)/python -c 'import sphinx, myst_parser, numpydoc, pydata_sphinx_theme, sphinx_copybutton, sphinx_design, sphinx_gallery' 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(TEST_ENV) $(BIN)/sphinx-build -W --keep-going --quiet docs site
	$(BIN)/python docs/check_site.py site
	$(BIN)/python docs/check_layout.py site
	@echo "open site/index.html"

package: $(READY) ## the source distribution and the wheel in dist/, checked
	ci/package.sh

bench: $(READY) ## measure, and write rows under benchmarks/results and a chart into docs (about two hours)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python benchmarks/scale.py --chart docs/scale.svg
	$(BIN)/python benchmarks/agreement.py
	$(BIN)/python benchmarks/neighbors.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/gpu.py
	$(BIN)/python benchmarks/exact.py
	$(BIN)/python benchmarks/cliques.py
	$(BIN)/python benchmarks/choices.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/refit.py
	$(BIN)/python benchmarks/scores.py
	$(BIN)/python benchmarks/data.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/sharing.py --rows 600 --sample 3
	$(BIN)/python benchmarks/svm.py
	$(BIN)/python benchmarks/encoding.py
	$(BIN)/python benchmarks/readers.py
	$(BIN)/python benchmarks/own.py
	$(BIN)/python benchmarks/studio.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/load.py
	$(BIN)/python benchmarks/scaleout.py
	$(BIN)/python benchmarks/killed_worker.py
	$(BIN)/python benchmarks/summaries.py

$(READY): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "ldsu needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) or sys.platform != "linux")'; then \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(LOCK) && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .; \
	else \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'; \
	fi
	@touch $@

clean: ## remove the environment and everything generated
	rm -rf $(VENV) demo site docs/gallery docs/generated build dist .coverage .pytest_cache .mypy_cache .ruff_cache
