# The two commands that matter: `make demo` and `make test`. Each sets everything up by itself and reuses earlier work.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DELTA  := 4.4.0
JARS   := .build/jars/delta-spark_4.2_2.13-$(DELTA).jar .build/jars/delta-storage-$(DELTA).jar

# Delta's two jars, fetched once, so that no session has to resolve packages.
space  := $(subst ,, )
export STRANDLINE_DELTA_JARS := $(subst $(space),:,$(abspath $(JARS)))

# A Kafka broker, and Spark's Kafka source: for tests and benchmarks only.
export STRANDLINE_KAFKA := $(abspath .build/kafka)
KAFKA := .build/kafka/.fetched

.PHONY: setup shim demo test check lint types scala core spark soak bench docs wheel clean
.DEFAULT_GOAL := help

help: ## what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: ## virtual environment, Delta's jars, the shim's jar
	@$(MAKE) --no-print-directory -j3 shim $(VENV)/.installed $(JARS)

$(VENV)/.installed: pyproject.toml
	@sh tools/check_tools.sh $(PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

# What fetches and compiles needs none of the environment's packages, so it does not wait for them.
shim:
	@sh tools/check_tools.sh $(PYTHON)
	@$(PYTHON) tools/build_shim.py

$(JARS): .build/jars/%.jar:
	@sh tools/check_tools.sh $(PYTHON)
	$(PYTHON) tools/fetch_jar.py io.delta:$(patsubst %-$(DELTA),%,$*):$(DELTA) $@

$(KAFKA): tools/fetch_kafka.py
	@sh tools/check_tools.sh $(PYTHON)
	$(PYTHON) tools/fetch_kafka.py $(STRANDLINE_KAFKA)
	@touch $@

DAYS   ?= 14
PAUSE  ?= JFK:8:3

demo: setup ## two weeks of real flights, exactly, beside Spark's own watermark (DAYS=5: a few days)
	$(BIN)/python examples/flights/run.py --days $(DAYS) --pause $(PAUSE)

test: lint ## everything: lint, types, Scala tests, Python tests, doctests, examples
	@$(MAKE) --no-print-directory -j2 scala core types
	@$(MAKE) --no-print-directory spark

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

scala: setup
	$(BIN)/python tools/build_shim.py test

# What needs no Spark leaves it a core.
core: setup
	$(BIN)/python -m pytest -m "not soak and not spark" -q

# A third of such a test is waiting, so two go beside each other, a module at a time; their JVMs do not live long enough for
# the second compiler to pay.
spark: export JDK_JAVA_OPTIONS = -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark: setup $(KAFKA)
	$(BIN)/python -m pytest -m "not soak and spark" -q -n 2 --dist loadfile --no-loadscope-reorder --durations 20

soak: setup $(KAFKA) ## the full counts: kills, plans, protocol steps (seeds printed, resumable)
	$(BIN)/python -m pytest -m soak -s --timeout 0

bench: setup $(KAFKA) ## every benchmark, one JSON line each at its end
	@for bench in benchmarks/[a-z]*.py; do echo "== $$bench"; $(BIN)/python $$bench || exit 1; done

wheel: setup ## the distribution, shim inside
	$(BIN)/python -m build --outdir dist .

docs: setup ## the documentation as a site, in site/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	$(BIN)/python -m mkdocs build --strict

clean: ## remove everything that was made
	rm -rf $(VENV) .build dist site target jvm-shim/target project/target project/project connector/pyspark_strandline/jars
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
