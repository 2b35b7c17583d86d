# make demo | build | test | bench | clean. Everything is made below build/; nothing is installed but Debian packages.
BUILD := build/release
VENV := build/venv
PYTHON := $(VENV)/bin/python
MEMPLAN := $(BUILD)/memplan

.PHONY: help packages venv build demo test test-live bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    build memplan and ask it about a model of data/models"
	@echo "make build   build memplan ($(MEMPLAN)) and its tests"
	@echo "make test    build and run every test; the last line says how many passed"
	@echo "make test-live  install PyTorch below build/ (3 GB) and let it make a sample of the recordings again"
	@echo "make bench   measure start-up and estimates, and print the table"
	@echo "make clean   remove build/"

packages:
	@tools/debian-packages.sh

# Python is used by the build (the ONNX messages come from a pinned package) and by the tests, never by memplan.
venv: $(VENV)/.ready
$(VENV)/.ready: tests/requirements.txt | packages
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	@touch $@

$(BUILD)/build.ninja: CMakeLists.txt CMakePresets.json $(wildcard cmake/*.cmake) $(VENV)/.ready
	cmake --preset release -DMEMPLAN_PYTHON=$(abspath $(PYTHON))
	@touch $@

build: packages $(BUILD)/build.ninja
	cmake --build $(BUILD)

demo: packages $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target memplan
	@echo
	@echo '$$ memplan data/models/gpt2.onnx --gpu 24GB --batch 8 --seq 1024'
	@$(MEMPLAN) data/models/gpt2.onnx --gpu 24GB --batch 8 --seq 1024 --exit-zero

test: build
	@$(PYTHON) tests/run.py --build $(BUILD)

# From then on `make test` does it, too. The recordings are PyTorch's own words on an emulated GPU (tests/emulated_gpu).
TORCH := build/torch
$(TORCH)/.ready: tests/requirements-torch.txt | packages
	python3 -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check -r tests/requirements-torch.txt
	@touch $@
test-live: build $(TORCH)/.ready
	cmake --preset release -DMEMPLAN_TORCH_PYTHON=$(abspath $(TORCH)/bin/python)
	cmake --build $(BUILD) --target emulated_gpu
	@$(TORCH)/bin/python tests/accuracy/live.py --emulated $(BUILD)/tests/emulated_gpu/libemulated_gpu.so

bench: build
	@$(PYTHON) tests/bench/run.py --build $(BUILD)

clean:
	rm -rf build
