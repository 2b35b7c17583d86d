#include "memplan_torch/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "estimators/tape/uses.h"

namespace memplan::torch_side {

namespace {

/// Ends a second run as soon as the last tensor is there (early_stop of torch.utils.checkpoint).
struct RecomputationDone {};

void run_calls(const Tape& tape, Names& names, const CallSettings& settings, Recorder& recorder, std::int32_t first,
               std::int32_t last, bool recorded) {
  for (std::int32_t i = first; i <= last; ++i) {
    recorder.begin_call(i);
    const Call& call = tape.calls[static_cast<std::size_t>(i)];
    const bool autocast = at::autocast::is_autocast_enabled(at::kCUDA);
    if (call.no_autocast) at::autocast::set_autocast_enabled(at::kCUDA, false);
    try {
      run_call(tape, call, names, settings);
    } catch (...) {
      at::autocast::set_autocast_enabled(at::kCUDA, autocast);
      recorder.end_call(recorded);
      throw;
    }
    at::autocast::set_autocast_enabled(at::kCUDA, autocast);
    recorder.end_call(recorded);
  }
}

/// _CheckpointFrame of torch/utils/checkpoint.py: what one checkpointed call needs to run again.
struct Region {
  const Tape& tape;
  const CheckpointRegion calls;
  const CallSettings settings;
  Recorder& recorder;
  bool autocast;
  c10::ScalarType autocast_dtype;
  std::vector<std::pair<std::size_t, c10::IValue>> inputs;
  std::size_t saved = 0;  ///< tensors that the first run would have kept
  bool recomputed = false;
  std::vector<at::Tensor> tensors;

  void recompute();
};

thread_local bool saving_on_host = false;        ///< while a SaveOnHost lives
thread_local std::shared_ptr<Region> first_run;  ///< set while a region runs for the first time
thread_local Region* second_run = nullptr;       ///< set while it runs again

/// Of the first run: keeps nothing but a place.
struct Placeholder : torch::autograd::SavedVariableHooks {
  explicit Placeholder(std::shared_ptr<Region> r) : region(std::move(r)) {}
  std::shared_ptr<Region> region;
  std::size_t place = 0;
  void call_pack_hook(const at::Tensor&) override { place = region->saved++; }
  at::Tensor call_unpack_hook() override {
    if (!region->recomputed) region->recompute();
    region->recomputed = true;
    return std::move(region->tensors.at(place));
  }
};

/// Of the second run: hands the tensor over, and its own graph keeps a view of it while it lasts.
struct Recording : torch::autograd::SavedVariableHooks {
  explicit Recording(Region& r) : region(r) {}
  Region& region;
  at::Tensor kept;
  void call_pack_hook(const at::Tensor& t) override {
    if (region.tensors.size() < region.saved) region.tensors.push_back(t.requires_grad() ? t.detach() : t);
    kept = t.detach();
    if (region.tensors.size() == region.saved) throw RecomputationDone{};
  }
  at::Tensor call_unpack_hook() override { return kept; }
};

/// pack_to_cpu and unpack_from_cpu of torch.autograd.graph.save_on_cpu.
struct HostCopy : torch::autograd::SavedVariableHooks {
  c10::Device device = c10::Device(c10::kCPU);
  at::Tensor packed;
  void call_pack_hook(const at::Tensor& t) override {
    device = t.device();
    packed = at::empty(t.sizes(), at::TensorOptions().dtype(t.scalar_type()).pinned_memory(true));
    packed.copy_(t);
  }
  at::Tensor call_unpack_hook() override { return packed.to(device, packed.scalar_type(), /*non_blocking=*/true); }
};

/// Python's hooks reach C++ through its own engine; without Python, this one brings them.
struct EngineWithHooks : torch::autograd::Engine {
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (second_run) return std::make_unique<Recording>(*second_run);
    if (first_run) return std::make_unique<Placeholder>(first_run);
    if (saving_on_host) return std::make_unique<HostCopy>();
    return nullptr;
  }
  static torch::autograd::Engine& get() {
    static auto* engine = new EngineWithHooks();  // never destroyed: its threads outlive main
    return *engine;
  }
};

void Region::recompute() {
  Region* const outer = std::exchange(second_run, this);
  const auto outer_first = std::exchange(first_run, nullptr);
  const bool old_autocast = at::autocast::is_autocast_enabled(at::kCUDA);
  const auto old_dtype = at::autocast::get_autocast_dtype(at::kCUDA);
  at::autocast::set_autocast_enabled(at::kCUDA, autocast);
  at::autocast::set_autocast_dtype(at::kCUDA, autocast_dtype);
  const auto restore = [&] {
    second_run = outer;
    first_run = outer_first;
    at::autocast::set_autocast_enabled(at::kCUDA, old_autocast);
    at::autocast::set_autocast_dtype(at::kCUDA, old_dtype);
    if (autocast) at::autocast::clear_cache();
  };
  try {
    c10::AutoGradMode enable(true);
    Names names(tape.values.size());
    for (const auto& [index, value] : inputs) names[index] = value;
    run_calls(tape, names, settings, recorder, calls.first, calls.last, false);
  } catch (const RecomputationDone&) {
  } catch (...) {
    restore();
    throw;
  }
  restore();
}

std::shared_ptr<Region> make_region(const Tape& tape, const CheckpointRegion& calls, const Names& names,
                                    const CallSettings& settings, Recorder& recorder) {
  auto region = std::make_shared<Region>(Region{tape,
                                                calls,
                                                settings,
                                                recorder,
                                                at::autocast::is_autocast_enabled(at::kCUDA),
                                                at::autocast::get_autocast_dtype(at::kCUDA),
                                                {},
                                                0,
                                                false,
                                                {}});
  std::vector<bool> seen(tape.values.size(), false);
  const auto take = [&](ValueId id) {
    const auto index = static_cast<std::size_t>(id.index);
    if (!id.valid() || seen[index]) return;
    seen[index] = true;
    region->inputs.emplace_back(index, names[index]);
  };
  for (std::int32_t i = calls.first; i <= calls.last; ++i) {
    const Call& call = tape.calls[static_cast<std::size_t>(i)];
    for_each_value(call, take);
    for (ValueId id : call.outputs)
      if (id.valid()) seen[static_cast<std::size_t>(id.index)] = true;
  }
  return region;
}

}  // namespace

SaveOnHost::SaveOnHost(bool wanted) : before_(std::exchange(saving_on_host, wanted)) {
  if (wanted) torch::autograd::set_default_engine_stub(EngineWithHooks::get);
}

SaveOnHost::~SaveOnHost() { saving_on_host = before_; }

void run_tape(const Tape& tape, Names& names, const CallSettings& settings, Recorder& recorder) {
  std::int32_t at = 0;
  const auto count = static_cast<std::int32_t>(tape.calls.size());
  if (!tape.checkpoints.empty() && c10::GradMode::is_enabled()) {
    torch::autograd::set_default_engine_stub(EngineWithHooks::get);
    for (const CheckpointRegion& calls : tape.checkpoints) {
      if (calls.first > at) run_calls(tape, names, settings, recorder, at, calls.first - 1, true);
      first_run = make_region(tape, calls, names, settings, recorder);
      try {
        run_calls(tape, names, settings, recorder, calls.first, calls.last, true);
      } catch (...) {
        first_run = nullptr;
        throw;
      }
      first_run = nullptr;
      at = calls.last + 1;
    }
  }
  if (at < count) run_calls(tape, names, settings, recorder, at, count - 1, true);
}

}  // namespace memplan::torch_side
