# Every target sets up .venv first; see `make help`.
#
# Without a GPU, install the much smaller CPU build of torch:
#   make demo PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"

PIP_ARGS ?=
PYTHON ?=
PYTEST_ARGS ?=
DIST_ARGS ?=
MEASURE_ARGS ?=
FUZZ_SECONDS ?= 60
FUZZ_FILES ?= 20000
TESTS := not slow and not gpu and not rehearsal and not studio
FAST := $(TESTS) and not integration and not parity
# What computes with kernels of a processor. Other tests compute nothing, or only what these do: predictors, proofs and
# generated code call the blocks.
CAPPED := tests/blocks tests/extensions/parsing/decode \
  $(addprefix tests/runtime/,compile decode/shortlist decode/test_stepper.py decode/test_unpadded.py)
# Of these, and of the passes, what is chosen by instructions or adds up many numbers. The others run as on this
# processor and as without AVX, between which AVX2 lies.
CHOOSING := $(addprefix tests/blocks/,attention kernels losses recurrent) tests/runtime/codegen/passes \
  $(addprefix tests/runtime/,compile decode/shortlist)
# CI does not run these, so mypy looks for calls and attributes that no longer exist.
RARELY_RUN := benchmarks examples tests/gpu tests/rehearsal tools
UNTYPED := arg-type import-not-found import-untyped misc no-any-return no-untyped-call no-untyped-def \
  operator type-arg union-attr unused-ignore var-annotated
BIN := .venv/bin
READY := .venv/.installed
DOCS_READY = $(BIN)/python -c 'import mkdocs, mkdocstrings, material, nbclient' 2>/dev/null || \
  $(BIN)/pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[docs]'
export PIP_ARGS PYTHON
# Keep compiled bytecode for the processes that tests start and for the next run.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help demo studio page vsix test fast fast-runtime fast-others test-capped test-all test-gpu measure-gpu measure-cpu test-parity test-rehearsal test-studio rehearsal-budgets test-export test-lowest test-docs docs docs-serve fuzz fuzz-files fuzz-readers dist test-dist lint types style check golden catalogue setup clean

help: ## print this help
	@echo "usage: make TARGET"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 12
	@echo
	@echo "variables: PIP_ARGS (extra arguments for pip install), PYTHON (interpreter), PYTEST_ARGS (extra arguments for pytest), DIST_ARGS (options of tools/check_dist.py), MEASURE_ARGS (options of benchmarks/measure_gpu.py), FUZZ_SECONDS (default: 60), FUZZ_FILES (default: 20000)"

demo: $(READY) ## generate a corpus, train a small translator on it and use it: 6 minutes on 2 cores
	@$(BIN)/weft demo --out outputs/demo

studio: $(READY) ## open the studio on transformer-base in a browser
	@$(BIN)/weft studio transformer-base

page: ## rebuild graphs/draw/page/ from studio/; needs node
	@cd studio && npm ci --no-fund --no-audit && npm run types && npm run build

vsix: ## build the extension of Visual Studio Code, editors/vscode/dist/weft.vsix; needs node
	@cd editors/vscode && npm ci --no-fund --no-audit && npm test && npm run build && npm run package

test-studio: $(READY) ## drive the studio in chromium; installs the extra 'studio-tests'
	@$(BIN)/python -c 'import playwright' 2>/dev/null || $(BIN)/pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[studio-tests]'
	@$(BIN)/pytest -m studio $(PYTEST_ARGS)

test: lint ## linters, all tests but the slow ones, and branch coverage of specs/ and graphs/
	@$(BIN)/pytest -n 2 --dist worksteal -m "$(TESTS)" --cov=specs --cov=graphs --cov-branch \
	  --cov-report=term:skip-covered --cov-fail-under=95 tests/specs tests/graphs
	@$(BIN)/pytest -n 2 --dist worksteal -m "$(TESTS)" --ignore=tests/specs --ignore=tests/graphs

fast: $(READY) ## the fast tests alone, without coverage: about a minute on two quiet cores
	@$(if $(PYTEST_ARGS),$(BIN)/pytest -n 2 --dist worksteal -m "$(FAST)" $(PYTEST_ARGS),\
	  $(MAKE) --no-print-directory -j2 $(if $(filter output-sync,$(.FEATURES)),-Otarget) \
	  fast-runtime fast-others)

# Two processes that collect and import a half each need less time than two workers, which collect all.
fast-runtime: HALF := tests/runtime
fast-others: HALF := tests --ignore=tests/runtime
fast-runtime fast-others: $(READY)
	@OMP_NUM_THREADS=1 $(BIN)/pytest -q -m "$(FAST)" $(HALF)

test-capped: $(READY) ## run what computes as on a processor with AVX2 alone, and without AVX: 2 minutes
	@if test -r /proc/cpuinfo && ! grep -qE 'avx512f|avx_vnni' /proc/cpuinfo; \
	  then echo "this processor has no more than AVX2: make test has run as the first part would"; \
	  else ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 \
	  $(BIN)/pytest -n 2 --dist worksteal -m "$(TESTS) and not parity and not exact" $(CHOOSING) $(PYTEST_ARGS); fi
	@ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default \
	  $(BIN)/pytest -n 2 --dist worksteal -m "$(FAST) and not exact" $(CAPPED) $(PYTEST_ARGS)

test-all: lint ## run the linters and all tests that need no GPU: minutes
	@$(BIN)/pytest -n 2 --dist worksteal -m "not gpu and not rehearsal and not studio" --hypothesis-profile=thorough $(PYTEST_ARGS)

test-gpu: $(READY) ## run the tests that need a GPU; they are skipped without one
	@$(BIN)/pytest -m gpu $(PYTEST_ARGS)

measure-gpu: $(READY) ## run the GPU tests, measure against peers, and write outputs/gpu/README.md: ten minutes; installs the extra 'benchmarks' and Eole
	@$(BIN)/python benchmarks/measure_gpu.py $(MEASURE_ARGS)

measure-cpu: $(READY) ## train and decode in turns with peers on the CPU: twelve minutes on two quiet cores; installs the extra 'benchmarks'
	@$(BIN)/python -c 'import ctranslate2, transformers' 2>/dev/null || $(BIN)/pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[benchmarks]'
	-@timeout 110 $(BIN)/python benchmarks/train.py --sizes tiny small --precision float32 --forms shipped --only 'Hugging Face Marian' --tokens 2048 --threads 1 --rounds 3 --seconds 60
	-@timeout 150 $(BIN)/python benchmarks/train.py --quick --rounds 3 --seconds 70
	-@timeout 180 $(BIN)/python benchmarks/train.py --sizes gpt2 --forms best --tokens 1024 --rounds 2 --seconds 60
	-@timeout 200 $(BIN)/python benchmarks/decode.py --rounds 3 --seconds 120 --only 'weft float32' 'weft int8, float32' 'weft int8, bfloat16' 'CTranslate2 float32' 'CTranslate2 int8'
	-@timeout 40 $(BIN)/python benchmarks/decode.py --rounds 7 --seconds 30 --beams 1 --sentences 1 --only 'weft float32' 'weft int8, float32' 'CTranslate2 float32' 'CTranslate2 int8'
	-@timeout 40 $(BIN)/python benchmarks/decode.py --generate --rounds 5 --seconds 30 --sentences 1 --length 64 --only 'weft float32' 'weft int8, float32' 'CTranslate2 float32' 'CTranslate2 int8'

test-parity: $(READY) ## compare imported models with Hugging Face's; installs the extra 'parity'
	@$(BIN)/python -c 'import peft, transformers' 2>/dev/null || $(BIN)/pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[parity]'
	@$(BIN)/pytest -n 2 --dist worksteal -m "parity$(if $(CI), and not exhaustive)" tests/parity $(PYTEST_ARGS)

test-rehearsal: ## run specs and objectives on fake CUDA tensors, without a GPU: minutes, 3 GB in .venv-rehearsal
	@tests/rehearsal/run.sh $(PYTEST_ARGS)

rehearsal-budgets: ## rewrite tests/rehearsal/budgets.json; then read the diff
	@WEFT_UPDATE_BUDGETS=1 tests/rehearsal/run.sh $(PYTEST_ARGS)

test-export: $(READY) ## run exported models in other engines: minutes; installs the extras 'ctranslate2' and 'onnx'
	@$(BIN)/python -c 'import ctranslate2, onnx, onnxruntime, onnxscript' 2>/dev/null || \
	  $(BIN)/pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[ctranslate2,onnx]'
	@$(BIN)/pytest -n 2 --dist worksteal $(if $(CI),$(FEW_EXPORTS),$(EXPORTS) --ignore=$(EXPORTS)/eject \
	  --ignore=$(EXPORTS)/test_huggingface.py) $(PYTEST_ARGS)

# CI runs here what `make test` skips for want of an engine, and exports a spec of each kind of state and form and the
# published examples whose states differ most. `make test-all` and `make test-export` without CI=true export every spec.
EXPORTS := tests/extensions/interop/export
FEW_EXPORTS = $(shell grep -rl importorskip $(EXPORTS) --include='test_*.py') -m 'not exhaustive' \
  -k 'not test_the_table and (not test_published or griffin or megabyte or streaming or positions)'

test-lowest: ## run the tests with the lowest version of each dependency, in .venv-lowest
	@test -x .venv-lowest/bin/python || $(or $(PYTHON),python3.11) -m venv .venv-lowest
	@.venv-lowest/bin/python tools/lowest.py > .venv-lowest/lowest.txt
	@.venv-lowest/bin/pip install --quiet $(PIP_ARGS) -c .venv-lowest/lowest.txt -e '.[dev]'
	@.venv-lowest/bin/pytest -n 2 --dist worksteal -W default -m "$(TESTS) and not golden" $(PYTEST_ARGS)

test-docs: docs ## run the notebooks, and build the documentation site with all links checked
	@$(BIN)/pytest tests/examples/test_notebooks.py $(PYTEST_ARGS)

docs: $(READY) ## build the documentation site into build/site; installs the extra 'docs'
	@$(DOCS_READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "build/site/index.html"

docs-serve: $(READY) ## show the documentation site at 127.0.0.1:8000 while it is written
	@$(DOCS_READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

fuzz: $(READY) ## fuzz the loading of specs with atheris for FUZZ_SECONDS; crashes go to outputs/fuzz
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[fuzz]' || \
	  { echo "atheris has no wheel for $$($(BIN)/python --version): run make clean, then PYTHON=python3.11 make fuzz"; exit 1; }
	@mkdir -p outputs/fuzz/corpus outputs/fuzz/crashes
	@$(BIN)/python tests/fuzz/fuzz_load.py outputs/fuzz/corpus -artifact_prefix=outputs/fuzz/crashes/ \
	  -max_total_time=$(FUZZ_SECONDS) -max_len=400000 -timeout=20 -rss_limit_mb=600

fuzz-files: $(READY) ## check FUZZ_FILES mutated specs, patches and runs; wrong ones go to outputs/fuzz
	@$(BIN)/python tests/fuzz/fuzz_files.py --files $(FUZZ_FILES)

fuzz-readers: $(READY) ## read FUZZ_FILES mutated data files, and compare with Python's own modules
	@$(BIN)/python tests/fuzz/fuzz_readers.py --files $(FUZZ_FILES)

dist: $(READY) ## build the source distribution and the wheel into dist/, and check their contents
	@$(BIN)/python tools/check_dist.py --build-only

test-dist: $(READY) ## build both distributions, install each outside the checkout and use it: 4 minutes
	@$(BIN)/python tools/check_dist.py $(DIST_ARGS)

lint: $(READY) ## run ruff and mypy, check the import contracts and refuse replaced words
	@$(MAKE) --no-print-directory -j2 $(if $(filter output-sync,$(.FEATURES)),-Otarget) types style
	@echo "lint: no errors"

types: $(READY) ## the part of lint that sees more with extras installed
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/mypy --no-error-summary $(UNTYPED:%=--disable-error-code=%) $(RARELY_RUN)

style: $(READY)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "wrong format: run $(BIN)/ruff format"; exit 1; }
	@report=$$($(BIN)/lint-imports --no-logo 2>&1) || { echo "$$report"; exit 1; }
	@$(BIN)/python tools/check_words.py
	@$(BIN)/python tools/house.py --names

check: test ## alias of test

golden: $(READY) ## rewrite the files in tests/golden; then read the diff
	@$(BIN)/pytest -m golden --update-golden $(PYTEST_ARGS)

catalogue: $(READY) ## rewrite docs/catalogue.md with its pictures, runs.md and generated-code.md; then read the diff
	@$(BIN)/python tools/catalogue.py docs
	@$(BIN)/python tools/run_page.py docs
	@$(BIN)/python tools/generated_code.py docs

setup: $(READY) ## create .venv and install everything into it

clean: ## remove generated files: .venv, caches, build and outputs/demo
	rm -rf .venv .venv-lowest .venv-rehearsal build dist *.egg-info outputs/demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt .ci/setup.sh
	@./.ci/setup.sh
