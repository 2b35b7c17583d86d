// How long a schedule may be (docs/limits.md).
#pragma once

#include <cstddef>
#include <string>

#include "estimators/base/error.h"

namespace memplan {

/// Allocations and frees of a run. Those of three steps of a model with 100,000 ops are a quarter of it; as many take a
/// few seconds and half a GiB.
inline constexpr std::size_t most_events = 4'000'000;
[[noreturn]] inline void fail_most_events(std::size_t most = most_events, const std::string& what = "the run") {
  fail_input(what + " has more than " + std::to_string(most) + " allocations and frees, the limit of events", {},
             "ask for fewer steps, micro-batches or GPUs (docs/limits.md)");
}

/// Of a pipeline rank whose micro-batches are all run, since each leaves something behind. Several kinds of ranks run.
inline constexpr std::size_t most_pipeline_events = 1'000'000;

/// Of micro-batches and steps that repeat each other and are all run.
inline constexpr double most_repeated_events = 100'000;

}  // namespace memplan
