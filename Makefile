# LLM Training Puzzles. `make` alone prints what there is to make.

VENV        := .venv
BIN         := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
# Extras of pyproject.toml: what the puzzles need, what a class needs, what all checks need. EXTRAS= is another choice.
LEARN       := notebook,cli
TEACH       := $(LEARN),png,grade
DEVELOP     := $(TEACH),dev,replay,optimum
THOROUGH    := $(DEVELOP),mutants
# Each choice that .venv has leaves a stamp in it; more than is needed is enough.
stamp        = $(VENV)/.ready-$(or $(EXTRAS),$(1))
have         = $(or $(firstword $(wildcard $(foreach choice,$(1),$(call stamp,$(choice))))),$(call stamp,$(lastword $(1))))
ALL         := $(call have,$(THOROUGH) $(DEVELOP))
CLASS       := $(call have,$(THOROUGH) $(DEVELOP) $(TEACH))
PUZZLES     := $(call have,$(THOROUGH) $(DEVELOP) $(TEACH) $(LEARN))
# One more than there are cores, as many tests wait for another process. ONLY=fsdp runs what has that word in its name.
WORKERS     ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1) + 1)))
PYTEST      := $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# The page's kernel runs all solved notebooks at every commit (tests/tools/test_browser_kernel.py); Jupyter's those of which
# each chapter has one, and all for `make test-all`.
JUPYTER      = $(if $(ONLY)$(filter thorough,$(TESTS)),solutions,$(sort $(wildcard solutions/00_*.ipynb solutions/*/01_*.ipynb)))
NBVAL       := -p tools.notebooks.kernels --nbval --nbval-current-env --nbval-cell-timeout=120 --timeout=600

# Pythons to try, first that runs and is new enough wins. `make setup PYTHON=/path/to/python` skips the search.
PYTHON      ?=
CANDIDATES  := python3.14 python3.13 python3.12 python3.11 python3 python

step = @printf '\n== %s ==\n' "$(1)"

# Tests and builds run solutions that nobody here has solved.
test test-all generated unit: export PUZZLES_PROGRESS := off
# Children would compile lib and drawing again and again.
test test-all generated unit: export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help lab demo setup test test-all test-browser conditions lint types imports generated unit fuzz mutants bench \
        format dist browser browser-serve lock clean distclean

help:  ## print this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

lab: $(PUZZLES)  ## open the puzzles in JupyterLab (options for it: LAB_FLAGS="--no-browser --port 8899")
	@echo 'Starting JupyterLab with your copies of the puzzles, my_puzzles/: about 5 seconds'
	@exec $(BIN)/puzzles lab $(LAB_FLAGS)

demo: $(PUZZLES)  ## draw and check every reference solution into demo/, without a browser
	@$(BIN)/puzzles demo

setup: $(CLASS)  ## make .venv with everything that learners and instructors need (EXTRAS=cli,grade: only that)
	@echo '.venv is ready. `source $(BIN)/activate` lets this shell know the command `puzzles`.'

# Types and notebooks are checked while tests wait for other processes; what is said of them comes last.
test: $(if $(ONLY),unit,lint imports)  ## run every check and every test (ONLY=fsdp: what has that word in its name)
	$(if $(ONLY),,@said=$(VENV)/.checks; trap 'kill $$checks 2>/dev/null' INT TERM; \
	$(MAKE) --no-print-directory types $(if $(filter thorough,$(TESTS)),,TYPED='lib drawing tools') generated \
	    >"$$said" 2>&1 & checks=$$!; \
	$(MAKE) --no-print-directory unit; tested=$$?; \
	wait $$checks; checked=$$?; cat "$$said"; exit $$((tested + checked)))
	$(call step,All checks passed)

conditions: $(ALL)  ## run a part of the tests in other surroundings: order, time zone, locale, umask, user
	@$(BIN)/python tests/conditions/run.py

test-all: $(call stamp,$(THOROUGH))  ## the same with thousands of random cases, signals, fuzz, mutants, other surroundings: hours
	@$(MAKE) --no-print-directory test TESTS=thorough
	@$(MAKE) --no-print-directory conditions fuzz mutants

test-browser: $(ALL) browser  ## make the pages and do in them what a learner does, in Chromium: 3 minutes
	@$(BIN)/pytest -m browser tests/tools/browser

lint: $(ALL)  ##   only style: ruff check, ruff format --check
	$(call step,Style (ruff))
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(ALL)  ##   only types: pyright (TYPED="lib drawing tools", as `make test` does: tests/ is for `make test-all`)
	$(call step,Types (pyright))
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright $(TYPED)

imports: $(ALL)  ##   only who imports whom: import-linter
	$(call step,Imports (import-linter))
	@$(BIN)/lint-imports --no-logo

generated: $(ALL)  ##   only the notebooks: are they what solutions/*.py give, are the unsolved ones in order
	$(call step,Puzzles and generated notebooks (puzzles check))
	@$(BIN)/puzzles check $(if $(filter thorough,$(TESTS)),,--stored)

unit: $(ALL)  ##   only tests/, and solved notebooks in Jupyter's kernel (nbval), outputs byte for byte, in WORKERS processes
	$(call step,Tests (pytest and nbval))
	@$(PYTEST) $(NBVAL) $(if $(ONLY),-k '$(ONLY)') tests $(JUPYTER)

fuzz: $(ALL)  ## write random correct and dishonest schedules (FUZZ_MINUTES=5, FUZZ_EXAMPLES, FUZZ_SEED)
	@PYTHONPATH=. PUZZLES_PROGRESS=off $(BIN)/python -m tests.adversary.fuzz

format: $(ALL)  ## correct style where it stands
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(ALL)  ## measure how fast it is, beside peers (ROWS="check retime", BASE=main, QUICK=1); all rows: docs/speed.md anew
	@$(BIN)/python -m benchmarks $(ROWS) $(if $(BASE),--base $(BASE)) $(if $(QUICK),--quick) $(if $(ROWS)$(BASE),,--write)

# Each module begins anew; WORKERS is how many mutants run at a time.
mutants: $(call stamp,$(THOROUGH))  ## change lib in small ways and see whether its tests notice: half an hour (MODULES="rules values")
	@WORKERS=$(WORKERS) $(BIN)/python tests/mutants/run.py $(MODULES)
	@$(BIN)/python tests/mutants/report.py $(MODULES)

dist: $(ALL)  ## build the wheel and the source archive into dist/
	@rm -rf dist && $(BIN)/python -m build

# The stamp of node's packages, which are no part of `make setup`.
NODE        := tools/browser/page/node_modules/.package-lock.json
$(NODE): tools/browser/page/package-lock.json
	@command -v npm >/dev/null || { echo "npm is missing, which fetches what the page is built of: https://nodejs.org" >&2; exit 1; }
	@cd tools/browser/page && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

browser: $(ALL) $(NODE)  ## make dist/browser, a folder of web pages with all puzzles and Python in them (needs node)
	@$(BIN)/puzzles export --browser dist/browser

browser-serve:  ## show dist/browser on this machine (PORT=8000)
	@$(BIN)/python -m tools.browser dist/browser --port $(or $(PORT),8000)

# jsonschema compiles a grammar of addresses from 4.25 on: 1.4 s in each process that reads a notebook.
lock:  ## write constraints.txt anew with today's versions (its last part, for replay, is kept)
	@$(find_python); \
	scratch="$$(mktemp -d)"; trap 'rm -rf "$$scratch"' EXIT; \
	"$$python" -m venv "$$scratch/venv"; \
	"$$scratch/venv/bin/python" -m pip install --quiet --editable '.[dev,notebook,cli,png,grade]' 'jsonschema<4.25'; \
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

# A stamp is there only after an install that came to its end. While one is under way there is .venv/.installing; found at
# the start, it means that the last one was interrupted, and half-installed packages are not to be trusted: begin again.
$(VENV)/.ready-%: pyproject.toml constraints.txt
	@$(find_python); \
	if [ -e $(VENV)/.installing ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	    echo "Making $(VENV) with $$("$$python" --version): about 5 seconds"; \
	    rm -rf $(VENV); mkdir $(VENV); touch $(VENV)/.installing; "$$python" -m venv $(VENV); \
	fi; \
	touch $(VENV)/.installing; \
	install="$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable"; \
	echo "Installing the puzzles and the command \`puzzles\`: about 15 seconds"; \
	$$install '.[cli]'; \
	echo "Installing $(if $(filter $(LEARN),$*),JupyterLab: about 30 seconds and 250 MB,$*: about a minute and 2 GB with all extras); minutes where it is all to be downloaded"; \
	$$install '.[$*]'; \
	rm $(VENV)/.installing; touch '$@'
