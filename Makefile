# make demo   set up, then forget two of ten clients and write a report (about a minute)
# make test   set up, then every check that takes seconds
# make docs   set up, then the documentation site into site/, offline
# make bench  set up with the peers to compare with, then every benchmark and docs/performance.md (about an hour)
# make fuzz   set up, then 10,000 bad inputs for the command line (about half an hour)
# make sbom   set up, then sbom.json: every package of the environment, as CycloneDX
# make crash  set up, then lose power at every operation on the disk, with three kinds of remains; cut off at every write (minutes)
# make kills  set up, then kill a hundred commands at random moments (minutes)
# make test-flower FLOWER=1.42.0   set up, then the tests over Flower with another version of it (half an hour)
# make test-deployment   set up, then SuperLinks and SuperNodes as real processes (about ten minutes)
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.up-to-date

.PHONY: demo test crash kills test-deployment test-flower fuzz sbom lint docs bench

demo: $(STAMP)
	$(VENV)/bin/fupareto demo

test: $(STAMP) lint
	$(VENV)/bin/python -m pytest --numprocesses 2 --dist loadfile

crash: $(STAMP)
	FUPARETO_CRASH_EVERY=1 FUPARETO_CRASH_SEEDS=2 $(VENV)/bin/python -m pytest -s tests/run/test_power.py tests/run/test_loop.py

kills: $(STAMP)
	FUPARETO_KILLS=100 $(VENV)/bin/python -m pytest -s tests/cli/test_kills.py

test-deployment: $(STAMP)
	$(VENV)/bin/python -m pytest -m deployment

# Without dependencies: those of the installed version serve, and a new version may ask for packages that a mirror lacks.
FLOWER ?= 1.42.0
OTHER := $(abspath $(VENV))/flower-$(FLOWER)
test-flower: $(STAMP)
	test -d $(OTHER) || $(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --target $(OTHER) flwr==$(FLOWER)
	PYTHONPATH=$(OTHER) $(VENV)/bin/python -m pytest tests/flower
	FUPARETO_OTHER_FLOWER=$(OTHER) $(VENV)/bin/python -m pytest -m deployment tests/flower -k another

fuzz: $(STAMP)
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(VENV)/bin/python -m fuzz --cases 10000

sbom: $(STAMP)
	$(VENV)/bin/python .ci/sbom.py sbom.json

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "site/index.html"

bench: $(STAMP)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]' \
	    || echo "not all peers could be installed; the benchmarks say which are skipped"
	$(VENV)/bin/python benchmarks/fedavg_round.py
	$(VENV)/bin/python benchmarks/versions.py
	$(VENV)/bin/python benchmarks/order.py
	$(VENV)/bin/python benchmarks/allocation.py
	$(VENV)/bin/python benchmarks/local_step.py
	$(VENV)/bin/python benchmarks/fupareto_round.py
	$(VENV)/bin/python benchmarks/line_search.py
	$(VENV)/bin/python benchmarks/growth.py
	$(VENV)/bin/python benchmarks/memory.py
	$(VENV)/bin/python benchmarks/solver.py
	$(VENV)/bin/python benchmarks/page.py

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fupareto needs Python 3.11 or newer")'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (a minute or two, once)"
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
