// PyTorch's eager mode as a runtime: the reference program (step/), the engine and the caching allocator, in the
// version that the setup's profile describes.
#include <fmt/format.h>

#include <algorithm>

#include "estimators/base/unwrap.h"
#include "estimators/runtime/runtime.h"
#include "estimators/runtime/torch/allocator/caching_allocator.h"
#include "estimators/runtime/torch/profile/environment.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/runtime/torch/step/pipeline_steps.h"
#include "estimators/runtime/torch/step/steps.h"

namespace memplan {

namespace {

class EagerAllocator final : public Allocator {
 public:
  explicit EagerAllocator(CachingAllocator allocator) : allocator_(std::move(allocator)) {}

  Placement allocate(const Request& request) override {
    const BlockId block = allocator_.malloc(request.bytes, request.stream);
    if (block == no_block) return {};
    return {block, allocator_.address(block), allocator_.block_bytes(block)};
  }
  void free(BlockId block) override { allocator_.free(block); }
  void empty_cache() override { allocator_.empty_cache(); }
  Usage usage() const override {
    const PoolStats& all = allocator_.stats().all;
    return {all.requested_bytes.current, all.allocated_bytes.current, all.reserved_bytes.current};
  }
  AllocatorTotals totals() const override {
    return {allocator_.stats().all.segment.current, allocator_.stats().num_alloc_retries};
  }
  std::vector<SegmentView> segments() const override { return allocator_.segments(); }
  void record_segments(std::vector<SegmentEvent>* log) override { allocator_.record_segments(log); }

 private:
  CachingAllocator allocator_;
};

/// What the environment is said to have: "CUBLAS_WORKSPACE_CONFIG=:4096:8", and what changes nothing.
std::vector<std::string> environment_words(const TrainingSetup& setup) {
  const TorchProfile& profile = profile_of(setup);
  std::vector<std::string> words;
  for (const auto& [name, value] : setup.runtime.environment)
    words.push_back(profile.reads.contains(name) ? name + "=" + value : name + " changes nothing in it");
  return words;
}

class TorchEager final : public Runtime {
 public:
  std::string title(const TrainingSetup& setup) const override {
    const RuntimeSetup& runtime = setup.runtime;
    const bool said = runtime.why.empty() || runtime.evidence == Evidence::assumed;  // doubts() says it
    std::vector<std::string> words = environment_words(setup);
    if (!said) words.insert(words.begin(), runtime.why);
    return profile_of(setup).name() + (setup.compile ? " with torch.compile" : " eager") +
           (words.empty() ? "" : fmt::format(" ({})", fmt::join(words, "; ")));
  }

  Notes doubts(const TrainingSetup& setup) const override {
    const TorchProfile& profile = profile_of(setup);
    Notes notes;
    if (setup.runtime.evidence == Evidence::recorded) return notes;
    const auto assume = [&](std::string text) {
      notes.push_back({{}, std::move(text), Evidence::assumed, About::version});
    };
    if (setup.runtime.evidence == Evidence::assumed) assume(fmt::format("{} is {}", profile.name(), setup.runtime.why));
    if (!profile.compared) assume(fmt::format("{} as its source says; no runs of it were compared", profile.name()));
    const auto changes = [&](const auto& variable) {
      return profile.reads.contains(variable.first) && !sets_allocator(variable.first);
    };
    const auto& environment = setup.runtime.environment;
    if (!profile.environments_compared && std::any_of(environment.begin(), environment.end(), changes))
      assume(fmt::format("what these variables change in {} is as its source says; no runs with them were compared",
                         profile.name()));
    return notes;
  }

  Schedule schedule(const Tape& tape, const TrainingSetup& setup, const Ranks& ranks,
                    const Device& device) const override {
    return unwrap(run_steps_observed(tape, setup, ranks, device, nullptr));
  }

  RankPrograms rank_programs(const Tape& tape, const TrainingSetup& setup, const Ranks& ranks,
                             const Device& device) const override {
    return {candidate_ranks(tape, ranks),
            [&tape, &setup, &device, ranks, shapes = pipeline_shapes(tape, setup, ranks, device)](std::int64_t rank) {
              return run_pipeline_steps(tape, setup, ranks, device, rank, shapes);
            }};
  }

  std::unique_ptr<Allocator> allocator(const Schedule&, const TrainingSetup& setup,
                                       const Device& device) const override {
    return std::make_unique<EagerAllocator>(
        CachingAllocator(setup.allocator, profile_of(setup).allocator,
                         DeviceMemory(device.total, outside(setup, device), setup.allocator.falling_addresses)));
  }

  Bytes outside(const TrainingSetup&, const Device& device) const override { return device.context; }
  std::string outside_assumption(const TrainingSetup&, const Device& device) const override {
    return fmt::format("CUDA context {}{}; it is outside PyTorch's counters", to_human(device.context),
                       device.context_source.empty() ? std::string() : " (" + device.context_source + ")");
  }
};

}  // namespace

const Runtime& torch_eager() {
  static const TorchEager runtime;
  return runtime;
}

}  // namespace memplan
