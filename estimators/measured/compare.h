// Predicted against measured: by counter, step, phase and category, and the first event that differs.
#pragma once

#include <string>
#include <vector>

#include "estimators/estimate/estimate.h"
#include "estimators/measured/measurement.h"
#include "estimators/replay/timeline.h"
#include "estimators/schedule/schedule.h"
#include "estimators/tape/tape.h"

namespace memplan {

struct ComparedCounter {
  std::string counter;  ///< one of counter_names
  Bytes predicted, measured;
  /// (predicted - measured) / measured; 0 where both are 0.
  double relative() const;
};

struct ComparedPhase {
  std::int64_t step = 0;
  std::string phase;  ///< empty: the whole step
  std::vector<ComparedCounter> counters;
};

/// Requested bytes alive at the peak of requested bytes, by what they are for.
struct ComparedCategory {
  std::string category;  ///< name_of(Category), or "not predicted" for measured bytes without a counterpart
  Bytes predicted, measured;
};

/// The first allocation or free in which the two runs differ.
struct Divergence {
  std::int64_t allocation = 0;  ///< allocations before it, which are equal
  std::string kind;             ///< "size", "only predicted", "only measured", "freed earlier", "freed later"
  std::string text;             ///< one sentence
  std::int64_t step = 0;
  std::string phase, module, source;
  std::string predicted_op, measured_op;
  Bytes predicted, measured;
};

/// Regions of an arena, which are equal as far as their sizes come in the same order.
struct ComparedRegions {
  std::int64_t predicted = 0, measured = 0, equal = 0;
};

struct Comparison {
  std::vector<ComparedCounter> peak;  ///< of all steps; only counters that were measured
  std::vector<ComparedPhase> steps, phases;
  std::vector<ComparedCategory> categories;
  std::int64_t predicted_allocations = 0, measured_allocations = 0, equal_allocations = 0;
  bool events_compared = false;
  std::optional<Divergence> divergence;
  std::optional<ComparedRegions> regions;  ///< compare_regions (sessions.h)
  /// The counter whose relative difference at the peak is largest; nullptr where none was measured.
  const ComparedCounter* worst() const;
};

/// Everything that the measurement knows. `timeline` is the replay of `schedule`, `estimate` its summary.
Comparison compare(const Tape& tape, const Schedule& schedule, const Timeline& timeline, const Estimate& estimate,
                   const Measurement& measured);

}  // namespace memplan
