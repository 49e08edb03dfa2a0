# Every target makes the environment it needs first; nothing else has to be installed by hand.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# The newest pinned interpreter that is really there (a version manager's shim may not run).
PYTHON ?= $(firstword $(foreach v,3.11 3.12,$(shell python$(v) -c 'print("python$(v)")' 2>/dev/null)) python3)
VENV ?= .venv
PY := $(VENV)/bin/python
PORT ?= 30000
PYTEST_ARGS ?=
# Two workers, see test/kit/lanes.py. `LANES=` runs all in one process.
LANES ?= -n 2 --dist loadscope
FAULT_SECONDS ?= inf

SOAK_ARGS ?= --requests 500
KITS_ARGS ?=
VISIT_ARGS ?=
BENCH_ARGS ?= --mode none,static,auto --context 128 --concurrency 1,4 --new-tokens 64 --together 2

.PHONY: help venv vendor demo serve bench test-spec test-spec-gpu gpu-visit test-unit test-full test-upstream soak faults mutation mails wheel pack lint format clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 16

venv:  ## make .venv: the patched SGLang, the CPU operators where there is no GPU, the tools
	@$(PYTHON) tools/venv.py --venv $(VENV)

vendor: venv  ## make python/sglang: the pinned wheel with patches/series applied

demo: venv  ## a real EAGLE3 server answers; table on stdout, figures in build/demo.json
	@$(PY) -m sglang_spec demo --output build/demo.json

serve: venv  ## keep a server with EAGLE3 up on 127.0.0.1 (PORT=30000) and print the curl line
	@$(PY) -m sglang_spec serve --port $(PORT)

bench: venv  ## speculation against none on the embedded pair; table, and results in build/bench
	@rm -rf build/bench
	@$(PY) -m sglang_spec bench run $(BENCH_ARGS) --output build/bench
	@$(PY) -m sglang_spec bench report build/bench/run.jsonl --record build/bench/concurrency.json >/dev/null

test-spec: venv  ## unit tests and real EAGLE3 decodes; JUnit XML in build/junit.xml
	@mkdir -p build
	@$(PY) -m pytest $(LANES) --junit-xml=build/junit.xml $(PYTEST_ARGS) test

test-spec-gpu: venv  ## the tests in test/gpu, or an error that names what is missing; record in build/gpu.json
	@mkdir -p build
	@status=0; $(PY) -m pytest --require-gpu --junit-xml=build/junit-gpu.xml $(PYTEST_ARGS) test/gpu || status=$$?; \
	 [ ! -e build/junit-gpu.xml ] || PYTHONPATH=test $(PY) -m kit.gpu_record write build/gpu.json build/junit-gpu.xml; \
	 exit $$status

gpu-visit: venv  ## tests and benchmarks of test/gpu/visit.toml, by worth, in 20 minutes; build/visit/home (VISIT_ARGS=--dry-run)
	@PYTHONPATH=test $(PY) -m gpu_visit run --out build/visit --bring-back build/visit/home $(VISIT_ARGS)

test-unit: venv  ## only what needs no server
	@$(PY) -m pytest $(PYTEST_ARGS) test/unit

test-full: venv  ## test-spec and every test that is too slow for it
	@mkdir -p build
	@$(PY) -m pytest --full $(LANES) --junit-xml=build/junit-full.xml $(PYTEST_ARGS) test

faults: venv  ## run every fault that has no result of this code, write docs/faults.md (FAULT_SECONDS=600: a piece)
	@cd test && ../$(PY) -m kit.fault_matrix --results results/faults.jsonl --renew --seconds $(FAULT_SECONDS)
	@cd test && ../$(PY) -m kit.fault_table --results results/faults.jsonl --write ../docs/faults.md

test-upstream: venv  ## upstream's own kits, patched beside plain; table in docs/upstream-kits.md
	@PYTHONPATH=test $(PY) -m upstream_kits --output test/results/upstream_kits.json --page docs/upstream-kits.md $(KITS_ARGS)

soak: venv  ## random requests at a real server, compared and measured; result in build/soak.json
	@PYTHONPATH=test $(PY) -m soak --output build/soak.json $(SOAK_ARGS)

mutation: venv  ## leave out each patch alone and see its test fail; table in patches/mutation.md
	@cd python && ../$(PY) -m vendoring mutation --pytest-arg=--full --output ../patches

mails: venv  ## try each mail for upstream on a clean tree; table in patches/mails.md
	@cd python && ../$(PY) -m vendoring mails --output ../patches

wheel: venv  ## wheels of the patched tree for 3.11 and 3.12 with their SBOMs, in dist/
	@cd python && for tag in cp311 cp312; do ../$(PY) -m vendoring wheel ../dist --python-tag $$tag; done

pack: venv  ## overlay, tests and draft in build/gpu.tar.gz for a GPU machine with the plain wheel
	@cd python && ../$(PY) -m vendoring pack ../build/gpu.tar.gz

lint: venv  ## format, lint and types, as CI checks them
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@cd python && ../$(PY) -m vendoring check

format: venv  ## let ruff format the project's own files
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

clean:  ## remove build results (the environment and the vendored tree stay)
	@rm -rf build
