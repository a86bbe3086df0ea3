# Two commands do it all: `make demo` and `make test`. Each sets up what it needs; the second time is quick.
PYTHON ?= python3
VENV := .venv
DIST ?= dist
BIN := $(VENV)/bin
# pip from outside, so that a python3 without ensurepip will do.
PIP := $(PYTHON) -m pip --python $(BIN)/python --disable-pip-version-check install --quiet --constraint constraints.txt
# Debian packages: OpenCV, which gym-pusht imports, links to the first two; the worlds on MuJoCo draw by EGL or,
# where that finds no device, by OSMesa.
SYSTEM_PACKAGES := libgl1 libglib2.0-0 libegl1 libegl-mesa0 libosmesa6
# Of the tests alone: the browser that looks at the studio, and the balancers before several servers.
TEST_PACKAGES := chromium haproxy nginx

.PHONY: help setup hands demo test test-fast test-long lint types unit reference reference-check docs dist system clean

help:
	@echo "make demo    see it work: a table and a video in demo/"
	@echo "make test    lint, types and the tests"
	@echo "make test-fast  the quick half of them; make test-long  how-tos and foreign robots"
	@echo "make docs    the documentation as pages in site/"
	@echo "make hands   install MediaPipe, which recap lift finds hands with"
	@echo "make dist    wheels in dist/"
	@echo "make setup   only install into .venv"
	@echo "make system  install Debian packages (as root)"

setup: $(VENV)/.base

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "recap needs Python 3.11 or newer: make PYTHON=python3.12 …"; exit 2; }
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || $(PYTHON) -m venv --without-pip $(VENV)

$(VENV)/.base: $(BIN)/python pyproject.toml client/pyproject.toml constraints.txt
	@echo "Installing recap into $(VENV) (once; a minute or two) …"
	@$(PIP) --editable ./client --editable '.[all]'
	@$(BIN)/python -c 'import cv2' 2>/dev/null || $(MAKE) --no-print-directory headless-opencv
	@touch $@

# OpenCV as gym-pusht asks for it needs libGL; where that is missing the headless build serves as well.
.PHONY: headless-opencv
headless-opencv:
	@echo "libGL is missing: replacing opencv-python by opencv-python-headless"
	@$(PYTHON) -m pip --python $(BIN)/python uninstall --quiet --yes opencv-python
	@$(PIP) opencv-python-headless

$(VENV)/.dev: $(VENV)/.base
	@echo "Installing what the tests need …"
	@$(PIP) --editable ./client --editable '.[dev]'
	@touch $@

# robosuite itself without what it asks for: mink 0.0.5, of whole-body control, wants numpy < 2 and is not used.
$(VENV)/.robosuite: $(VENV)/.dev
	@echo "Installing robosuite (157 MB) …"
	@$(PIP) --editable ./client --editable '.[dev,robosuite]'
	@$(PIP) --no-deps robosuite==1.5.2
	@touch $@

# The wheel of MediaPipe that carries its hand models asks for numpy < 2, which it does not need.
hands: $(VENV)/.hands

$(VENV)/.hands: $(VENV)/.base
	@echo "Installing MediaPipe, which finds hands in films …"
	@$(PIP) --editable ./client --editable '.[hands]'
	@$(PIP) --no-deps mediapipe==0.10.21
	@touch $@

demo: $(VENV)/.base
	@$(BIN)/recap demo

test: $(VENV)/.dev lint types reference-check unit

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev
	@$(BIN)/mypy

unit: $(VENV)/.dev
	@$(BIN)/pytest -m "not long"

test-fast: $(VENV)/.dev
	@$(BIN)/pytest -m "not long" tests/test_*.py tests/features tests/retrieval tests/evaluation --ignore=tests/evaluation/test_ray_runner.py

test-long: $(VENV)/.dev $(VENV)/.robosuite $(VENV)/.hands
	@RECAP_NEEDS=robosuite,mediapipe,haproxy,nginx $(BIN)/pytest -m long

reference: $(VENV)/.base
	@$(BIN)/python docs/reference/generate.py
	@$(BIN)/python docs/results/tables.py
	@$(BIN)/python research/benchmarks/controls_page.py

reference-check: $(VENV)/.base
	@$(BIN)/python docs/reference/generate.py --check
	@$(BIN)/python docs/results/tables.py --check
	@$(BIN)/python research/benchmarks/controls_page.py --check

$(VENV)/.docs: $(VENV)/.base
	@echo "Installing what the documentation needs …"
	@$(PIP) --editable ./client --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "Documentation: site/index.html"

# The plugins ask for LeRobot's Python 3.12; to build them any will do.
dist:
	@rm -rf $(DIST) && mkdir -p $(DIST)
	@$(PYTHON) -m pip --disable-pip-version-check wheel --quiet --no-deps --ignore-requires-python --wheel-dir $(DIST) \
		. ./client ./integrations/lerobot_policy_recap ./integrations/lerobot_robot_recap_sim
	@ls $(DIST)

system:
	@if ! command -v apt-get >/dev/null; then echo "make system: no apt-get here; install the equivalents of: $(SYSTEM_PACKAGES) $(TEST_PACKAGES)"; \
	elif dpkg -s $(SYSTEM_PACKAGES) $(TEST_PACKAGES) >/dev/null 2>&1; then echo "make system: all there"; \
	elif [ "$$(id -u)" != 0 ]; then echo "make system: run as root to install: $(SYSTEM_PACKAGES) $(TEST_PACKAGES)"; \
	else apt-get update -qq && apt-get install -y -qq --no-install-recommends $(SYSTEM_PACKAGES) $(TEST_PACKAGES); fi

clean:
	rm -rf $(VENV) build dist demo site .pytest_cache .mypy_cache .ruff_cache .hypothesis
