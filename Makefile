# LLM Training Puzzles. `make` alone prints what there is to make.

VENV        := .venv
BIN         := $(VENV)/bin
EXTRAS      ?= dev,notebook,cli,png,explore,grade,replay,optimum
# One more than there are cores: many tests wait for a clock or another process.
WORKERS     ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1) + 1)))
NBVAL_FLAGS := --nbval --nbval-current-env --nbval-cell-timeout=120 --timeout=600
LAB_FLAGS   ?=
STAMP       := $(VENV)/.ready-$(EXTRAS)

# Pythons to try, first that runs and is new enough wins. `make setup PYTHON=/path/to/python` skips the search.
PYTHON      ?=
CANDIDATES  := python3.13 python3.12 python3.11 python3 python

step = @printf '\n== %s ==\n' "$(1)"

# Tests and builds run solutions that nobody here has solved.
test generated notebooks: export PUZZLES_PROGRESS := off

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup lab demo test lint types imports generated unit notebooks fuzz format bench mutants lock dist clean distclean

help:  ## print this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP)  ## make .venv with everything the other targets need (they all do this first)
	@echo '.venv is ready ($(EXTRAS)). Next:'
	@echo '  make lab                     opens your copies of the puzzles, my_puzzles/, in JupyterLab'
	@echo '  source $(BIN)/activate   then this shell knows the command `puzzles`, as those of JupyterLab do'

lab: $(STAMP)  ## open the puzzles in JupyterLab (options for it: LAB_FLAGS="--no-browser --port 8899")
	@exec $(BIN)/puzzles lab $(LAB_FLAGS)

demo: $(STAMP)  ## draw and check every reference solution into demo/, without a browser
	@$(BIN)/puzzles demo

test: lint types imports generated unit notebooks  ## run every check and every test
	$(call step,All checks passed)

lint: $(STAMP)  ##   only style: ruff check, ruff format --check
	$(call step,Style (ruff))
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP)  ##   only types: pyright
	$(call step,Types (pyright))
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright

imports: $(STAMP)  ##   only who imports whom: import-linter
	$(call step,Imports (import-linter))
	@$(BIN)/lint-imports --no-logo

generated: $(STAMP)  ##   only the notebooks: are they what solutions/*.py generate, are the records whole
	$(call step,Puzzles and generated notebooks (puzzles check))
	@$(BIN)/puzzles check

unit: $(STAMP)  ##   only tests/, in parallel (WORKERS=1: one after another)
	$(call step,Tests (pytest))
	@$(BIN)/pytest -n $(WORKERS) --dist loadfile tests

notebooks: $(STAMP)  ##   only the solved notebooks: run again, outputs compared byte for byte (nbval)
	$(call step,Solved notebooks (nbval))
	@$(BIN)/pytest -n $(WORKERS) --dist loadfile $(NBVAL_FLAGS) solutions

fuzz: $(STAMP)  ## write random correct and dishonest schedules (FUZZ_MINUTES=5, FUZZ_EXAMPLES, FUZZ_SEED)
	@PYTHONPATH=. PUZZLES_PROGRESS=off $(BIN)/python -m tests.adversary.fuzz

format: $(STAMP)  ## mend style in place
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP)  ## measure the simulator (benchmarks/)
	@$(BIN)/python benchmarks/run.py
	@$(BIN)/python benchmarks/drawing.py
	@$(BIN)/python benchmarks/stepper.py
	@$(BIN)/python benchmarks/replay.py
	@$(BIN)/python benchmarks/grading.py

# mutmut is not in EXTRAS: nobody else needs it. Each module begins anew; WORKERS is how many mutants run at a time.
mutants: $(STAMP)  ## change lib in small ways and see whether its tests notice: half an hour (MODULES="rules values")
	@[ -x $(BIN)/mutmut ] || \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[mutants]'
	@WORKERS=$(WORKERS) $(BIN)/python tests/mutants/run.py $(MODULES)
	@$(BIN)/python tests/mutants/report.py $(MODULES)

dist: $(STAMP)  ## build the wheel and the source archive into dist/
	@rm -rf dist && $(BIN)/python -m build

lock:  ## write constraints.txt anew with today's versions (its last part, for replay, is kept)
	@$(find_python); \
	scratch="$$(mktemp -d)"; trap 'rm -rf "$$scratch"' EXIT; \
	"$$python" -m venv "$$scratch/venv"; \
	"$$scratch/venv/bin/python" -m pip install --quiet --editable '.[dev,notebook,cli,png,explore,grade]'; \
	{ sed '/^[^#]/,$$d' constraints.txt; \
	  "$$scratch/venv/bin/python" -m pip freeze --exclude-editable | LC_ALL=C sort -f; \
	  sed -n '/^# For the extra `replay`/,$$p' constraints.txt; \
	} >"$$scratch/constraints.txt"; \
	cp "$$scratch/constraints.txt" constraints.txt

clean:  ## remove what was made, but not .venv
	@rm -rf demo dist build mutants .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage htmlcov *.egg-info
	@find . -path ./$(VENV) -prune -o \( -name __pycache__ -o -name .ipynb_checkpoints \) -type d -prune -exec rm -rf {} +

distclean: clean  ## remove .venv too
	@rm -rf $(VENV)

# Sets $python in the shell to an interpreter that can make a virtual environment, or stops with what to do about it.
define find_python
set -e; python=; novenv=; \
for candidate in $(if $(PYTHON),'$(PYTHON)',$(CANDIDATES)); do \
    "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue; \
    if "$$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then python="$$candidate"; break; fi; \
    novenv="$${novenv:-$$candidate}"; \
done; \
if [ -z "$$python" ] && [ -n "$$novenv" ]; then \
    echo "$$novenv is new enough but cannot make virtual environments: its modules venv and ensurepip are missing." >&2; \
    echo "On Debian or Ubuntu: sudo apt install python3-venv (or $$(basename "$$novenv")-venv), then make again." >&2; exit 1; \
elif [ -z "$$python" ]; then \
    echo "No Python 3.11 or newer among: $(or $(PYTHON),$(CANDIDATES))." >&2; \
    echo "Install one (https://www.python.org/downloads/) or name it: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3" >&2; exit 1; \
fi
endef

# The stamp is there only after an install that came to its end. While one is under way there is .venv/.installing;
# found at the start, it means that the last one did not, and half-installed packages are not to be trusted: begin again.
$(STAMP): pyproject.toml constraints.txt
	@$(find_python); \
	rm -f $(VENV)/.ready-*; \
	if [ -e $(VENV)/.installing ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	    echo "Making $(VENV) with $$("$$python" --version) ($$python)"; \
	    rm -rf $(VENV); mkdir $(VENV); touch $(VENV)/.installing; "$$python" -m venv $(VENV); \
	fi; \
	touch $(VENV)/.installing; \
	echo "Installing [$(EXTRAS)] into $(VENV): about a minute the first time"; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(EXTRAS)]'; \
	rm $(VENV)/.installing; touch '$@'
