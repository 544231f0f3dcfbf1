# make run    sets everything up, generates Linear Road input, runs it on Ray, checks every answer;
#             FEED=spark: Spark feeds the running job instead of the job reading files
# make test   sets everything up, runs all checks, and all tests but the longest
# make test-long  the same with the longest tests alone: benchmarks on Ray, the autoscaler, and some more
# make check  style, layers and types only
# make site   the documentation as pages, in build/site/html
# make mutants  tries the tests of the core: changes one thing at a time (MUTANTS="inlet --sample 15")
# make clean  removes the environment and what the commands wrote here

XWAYS ?= 1
DURATION ?= 5400
FEED ?= files
SPEED ?= $(if $(filter spark,$(FEED)),20,60)
PYTEST ?=
MUTANTS ?=

VENV := .venv
PYTHON_IN := $(VENV)/bin/python
SETUP := pyproject.toml constraints.txt tools/install.py tools/system.py

export RAY_USAGE_STATS_ENABLED := 0
# Some machines forbid Python to keep what it compiled: each process of a job would compile it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-long check site mutants clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^# //p' Makefile

run: $(VENV)/.ready-run
	@$(PYTHON_IN) -m lrb demo --xways $(XWAYS) --seconds $(DURATION) --speed $(SPEED) --feed $(FEED)

test: $(VENV)/.ready-dev
	@$(PYTHON_IN) tools/check.py --tests $(PYTEST)

test-long: $(VENV)/.ready-dev
	@$(PYTHON_IN) tools/check.py --tests --long $(PYTEST)

check: $(VENV)/.ready-dev
	@$(PYTHON_IN) tools/check.py

site: $(VENV)/.ready-dev
	@$(PYTHON_IN) tools/docs_site.py

mutants: $(VENV)/.ready-dev
	@$(PYTHON_IN) tools/mutants.py $(MUTANTS)

clean:
	rm -rf $(VENV) .peers .mutants data answers report .hypothesis .mypy_cache .ruff_cache .pytest_cache

$(VENV)/.ready-run: $(SETUP)
	@tools/with-python tools/install.py run
	@touch $@

$(VENV)/.ready-dev: $(SETUP)
	@tools/with-python tools/install.py dev
	@touch $@ $(VENV)/.ready-run
