# The two commands that matter: `make demo` and `make test`. Each sets everything up by itself and reuses earlier work.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DELTA  := 4.4.0
JARS   := .build/jars/delta-spark_4.2_2.13-$(DELTA).jar .build/jars/delta-storage-$(DELTA).jar

# Delta's two jars, fetched once, so that no session has to resolve packages.
space  := $(subst ,, )
export STRANDLINE_DELTA_JARS := $(subst $(space),:,$(abspath $(JARS)))

# Hadoop's local file system without a process for each file that it makes: for tests only.
BARE := .build/jars/hadoop-bare-naked-local-fs-0.1.0.jar

# A Kafka broker, and Spark's Kafka source: for tests and benchmarks only.
export STRANDLINE_KAFKA := $(abspath .build/kafka)
KAFKA := .build/kafka/.fetched

# What tests of object stores need: Spark's S3, and for soak Azure's emulator. The S3 server is a package of Python.
export STRANDLINE_HADOOP_AWS := $(abspath .build/hadoop-aws)
HADOOP_AWS := .build/hadoop-aws/.fetched
AZURITE    := .build/azurite/.fetched

# The tests start many Python processes. Each would compile all that it imports, where the environment forbids to keep that. Each
# would start threads for algebra that none does.
export PYTHONDONTWRITEBYTECODE :=
export OPENBLAS_NUM_THREADS := 1

.PHONY: setup shim demo test check format lint types scala core spark mutations soak bench docs wheel clean
.DEFAULT_GOAL := help
# Set-up waits for downloads, and tests wait for processes.
MAKEFLAGS += -j4
ifneq ($(filter clean,$(MAKECMDGOALS)),)
.NOTPARALLEL: # `make clean setup` cleans first
endif

help: ## what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: shim $(VENV)/.installed $(JARS) ## virtual environment, Delta's jars, the shim's jar

# Both would compress PySpark's jars to a wheel and expand them at once, and pip would compile what nobody imports. uv needs a fifth
# of pip's processor time. It does not read pip's settings, so where it finds no packages, pip installs them.
STORED := --config-settings=--build-option=--compression=stored

$(VENV)/.installed: pyproject.toml
	@sh tools/check_tools.sh $(PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Packages of Python: about a gigabyte into $(VENV), some minutes on a fresh machine"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=23.1" "uv>=0.5,<1"
	@UV_FIND_LINKS="$$PIP_FIND_LINKS" UV_NATIVE_TLS=1 UV_SYSTEM_CERTS=1 \
		$(BIN)/uv pip install --quiet --python $(BIN)/python $(STORED) -e ".[dev]" 2> $(VENV)/uv.log \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(STORED) -e ".[dev]"
	@touch $@

# What fetches and compiles needs none of the environment's packages, so it does not wait for them.
shim:
	@sh tools/check_tools.sh $(PYTHON)
	@$(PYTHON) tools/build_shim.py

$(JARS): .build/jars/%.jar:
	@sh tools/check_tools.sh $(PYTHON)
	$(PYTHON) tools/fetch_jar.py io.delta:$(patsubst %-$(DELTA),%,$*):$(DELTA) $@

$(BARE):
	@sh tools/check_tools.sh $(PYTHON)
	$(PYTHON) tools/fetch_jar.py com.globalmentor:hadoop-bare-naked-local-fs:0.1.0 $@

$(KAFKA): tools/fetch_kafka.py
	@sh tools/check_tools.sh $(PYTHON)
	$(PYTHON) tools/fetch_kafka.py $(STRANDLINE_KAFKA)
	@touch $@

$(HADOOP_AWS): tools/fetch_hadoop_aws.py tools/fetch_kafka.py
	@sh tools/check_tools.sh $(PYTHON)
	$(PYTHON) tools/fetch_hadoop_aws.py $(STRANDLINE_HADOOP_AWS)
	@touch $@

$(AZURITE): tools/fetch_azurite.py
	$(PYTHON) tools/fetch_azurite.py $(abspath .build/azurite)
	@touch $@

DAYS   ?= 14
PAUSE  ?= JFK:8:3

demo: setup ## two weeks of real flights, exactly, beside Spark's own watermark (DAYS=5: a few days)
	$(BIN)/python examples/flights/run.py --days $(DAYS) --pause $(PAUSE)

# One of so many of the long tests runs, drawn anew each time. DRAW=1 runs all of them.
DRAW   ?= 40

test: scala lint spark core types ## everything: lint, types, Scala tests, Python tests, doctests, examples (DRAW=1: all long ones)

check: types setup $(BARE) ## the inner loop: lint, types, the tests without Spark, and one query in Spark
	$(BIN)/python -m pytest -m "not soak and (smoke or not spark)" -q -n 2 --draw $(DRAW)

# Neither these nor the core's tests need the shim, so they do not wait for its compiler. They run at a lower priority, because the
# tests with Spark wait for the compiler and take longest.
lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed ## formats Python and Scala
	$(BIN)/ruff format .
	$(PYTHON) tools/format_scala.py

types: lint
	nice -n 5 $(BIN)/mypy

# It does not wait for the environment.
scala: shim
	$(PYTHON) tools/build_shim.py test

core: lint
	nice -n 5 $(BIN)/python -m pytest -m "not soak and not spark" -q -n 2 --draw $(DRAW)

# The classes that every JVM of the tests loads, read once, so that the many JVMs start faster.
CLASSES := .build/classes.jsa
QUICK   := -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -XX:MetaspaceSize=256m -XX:InitialRAMPercentage=4 $(if $(filter Linux,$(shell uname)),-Djdk.lang.Process.launchMechanism=VFORK)

$(CLASSES): tools/class_archive.py pyproject.toml | setup
	@JDK_JAVA_OPTIONS="$(QUICK)" $(BIN)/python tools/class_archive.py $@ 2> .build/classes.log || (cat .build/classes.log; exit 1)

# A third of such a test is waiting, which the tests without Spark use. Two go beside each other, a module at a time. No JVM lives
# long enough for the second compiler to pay, and Hadoop starts a process for each file that it makes. With the first compiler alone,
# the JVM's cache of compiled code is 48 MB: a few modules fill it, and then code is compiled again and again.
spark: export JDK_JAVA_OPTIONS = $(QUICK) -XX:SharedArchiveFile=$(abspath $(CLASSES)) -Xlog:disable
spark: lint setup $(KAFKA) $(HADOOP_AWS) $(BARE) $(CLASSES)
	$(BIN)/python -m pytest -m "not soak and spark" -q -n 2 --dist loadfile --no-loadscope-reorder --durations 20 --draw $(DRAW)

mutations: export JDK_JAVA_OPTIONS = $(QUICK) -XX:SharedArchiveFile=$(abspath $(CLASSES)) -Xlog:disable
mutations: setup $(KAFKA) $(HADOOP_AWS) $(AZURITE) $(BARE) $(CLASSES) ## which of 60 small faults the tests find (hours; resumable; ARGS="--parts shim")
	$(BIN)/python tools/mutations.py $(ARGS)

soak: setup $(KAFKA) $(HADOOP_AWS) $(AZURITE) $(BARE) ## the full counts: kills, plans, protocol steps (seeds printed, resumable)
	$(BIN)/python -m pytest -m "soak or drawn" -s --timeout 0

bench: setup $(KAFKA) ## every benchmark; makes benchmarks/RESULTS.md (two hours on a quiet machine; resumable; ARGS="--only scan")
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[bench]"
	$(BIN)/python benchmarks/run_all.py $(ARGS)

wheel: setup ## the distribution, the shims of all Spark lines inside
	$(BIN)/python tools/build_shim.py --spark 4.3.0
	$(BIN)/python -m build --outdir dist .

docs: setup ## the documentation as a site, in site/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	$(BIN)/python -m mkdocs build --strict

clean: ## remove everything that was made
	rm -rf $(VENV) .build dist site target jvm-shim/target project/target project/project connector/pyspark_strandline/jars
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
