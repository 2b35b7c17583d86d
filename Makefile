# make demo | build | test | bench | clean. Everything is made below build/; nothing is installed but Debian packages.
BUILD := build/release
VENV := build/venv
TORCH := build/torch
PYTHON := $(VENV)/bin/python
MEMPLAN := $(BUILD)/memplan

.PHONY: help packages venv build demo wheel wheel-aarch64 test lint fuzz asan tsan coverage live test-live bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    build memplan and ask it about a model of data/models"
	@echo "make build   build memplan ($(MEMPLAN)) and its tests"
	@echo "make wheel   a wheel for every Linux on x86-64, below build/dist (installs PyTorch below build/, 3 GB)"
	@echo "make wheel-aarch64  a wheel for every Linux on 64-bit ARM, cross-built"
	@echo "make test    build and run every test; the last line says how many passed (installs PyTorch below build/, 3 GB)"
	@echo "make live    install PyTorch below build/ (3 GB) and build what 'memplan validate --on' needs"
	@echo "make test-live  only the sample of recordings that PyTorch makes again"
	@echo "make lint    clang-tidy over the sources; SINCE=COMMIT: only over what differs from it"
	@echo "make fuzz    search for inputs that break memplan, with sanitizers; MINUTES=N"
	@echo "make asan    run the suites under the address and undefined-behaviour sanitizers (make tsan: the thread sanitizer); SUITES=..."
	@echo "make coverage  which lines of estimators/, planner/ and cli/ the suites run"
	@echo "make bench   measure start-up and estimates, and print the table"
	@echo "make clean   remove build/"

packages:
	@tools/debian-packages.sh

# Python is used by the tests, never by the build and never by memplan.
venv: $(VENV)/.ready
$(VENV)/.ready: tests/requirements.txt tests/cli/junit_schema.py | packages
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	$(PYTHON) tests/cli/junit_schema.py
	@touch $@

$(BUILD)/build.ninja: CMakeLists.txt CMakePresets.json $(wildcard cmake/*.cmake)
	cmake --preset release
	@touch $@

build: packages $(BUILD)/build.ninja
	cmake --build $(BUILD)

# Built for the quickest first answer; make build optimizes more.
demo: packages
	@cmake --preset demo >/dev/null
	@cmake --build build/demo --target memplan
	@echo
	@echo '$$ memplan data/models/gpt2.onnx --gpu 24GB --batch 8 --seq 1024'
	@build/demo/memplan data/models/gpt2.onnx --gpu 24GB --batch 8 --seq 1024 --exit-zero

# PyTorch's own words on an emulated GPU (emulated_gpu): recorded ones always, a sample of them made again where
# PyTorch can be installed below build/ (3 GB).
test: packages
	@tools/debian-packages.sh clang-format clang-tidy
	@$(MAKE) --no-print-directory -k -j 3 build venv $(TORCH)/.ready || echo "one after the other:"  # downloads beside the compiler
	@$(MAKE) --no-print-directory build venv
	@$(MAKE) --no-print-directory live || echo "PyTorch could not be set up in build/torch: the live sample is left out"
	@$(PYTHON) tests/run.py --build $(BUILD)

# One program without shared libraries, and the emulated GPU for every PyTorch.
STATIC := build/static
wheel: packages venv $(TORCH)/.ready
	tools/static-libraries.sh build/static-libraries
	cmake --preset static -DMEMPLAN_TORCH_PYTHON=$(abspath $(TORCH)/bin/python)
	cmake --build $(STATIC) --target memplan emulated_gpu
	tools/wheel.sh $(PYTHON) $(STATIC) build/dist

# The same program for 64-bit ARM, without the emulated GPU. qemu-user-static runs it here: tests/install/run.py does.
wheel-aarch64: packages venv
	@tools/debian-packages.sh g++-aarch64-linux-gnu qemu-user-static
	tools/static-libraries.sh build/static-libraries-aarch64 aarch64
	cmake --preset static-aarch64
	cmake --build build/static-aarch64 --target memplan
	tools/wheel.sh $(PYTHON) build/static-aarch64 build/dist aarch64

lint: build
	@tools/debian-packages.sh clang-format clang-tidy
	@python3 tests/lint/run.py --build $(BUILD) $(if $(SINCE),--since $(SINCE))

$(TORCH)/.ready: tests/requirements-torch.txt | packages
	python3 -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check -r tests/requirements-torch.txt
	@touch $@
live: build $(TORCH)/.ready
	cmake --preset release -DMEMPLAN_TORCH_PYTHON=$(abspath $(TORCH)/bin/python)
	cmake --build $(BUILD) --target emulated_gpu memplan-torch
test-live: live
	@$(TORCH)/bin/python tests/accuracy/live.py --emulated $(BUILD)/emulated_gpu/libemulated_gpu.so

MINUTES := 10
fuzz: packages
	@tools/debian-packages.sh clang libclang-rt-14-dev
	cmake --preset asan
	cmake --build build/asan --target memplan_fuzz memplan_fuzz_parsers
	@python3 tests/fuzz/fuzz.py --build build/asan --minutes $(MINUTES)

# The suites with sanitizers; SUITES="unit cli" runs these alone.
asan: packages venv
	@tools/debian-packages.sh clang libclang-rt-14-dev
	cmake --preset asan
	cmake --build build/asan
	@$(PYTHON) tests/sanitized.py --build build/asan $(if $(SUITES),--only $(SUITES))
tsan: packages venv
	cmake --preset tsan
	cmake --build build/tsan
	@$(PYTHON) tests/sanitized.py --build build/tsan $(if $(SUITES),--only $(SUITES))

# Lines of estimators/, planner/ and cli/ that the suites run.
coverage: packages venv $(TORCH)/.ready
	@tools/debian-packages.sh clang llvm
	cmake --preset coverage -DMEMPLAN_TORCH_PYTHON=$(abspath $(TORCH)/bin/python)
	cmake --build build/coverage
	@$(PYTHON) tests/coverage.py --build build/coverage

bench: build venv
	@$(PYTHON) tests/bench/run.py --build $(BUILD)

clean:
	rm -rf build
