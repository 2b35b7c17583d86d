// How far off an estimate may be, and what makes it so.
//
// A range is the sum of named sources. A source is priced by trial: what the file leaves open is read another way
// (tape/reading.h), the setup is estimated again, and the differences below and above are what the source adds. Only
// what no trial can price, such as an op without a row, adds the bound that its fact states (docs/evidence.md).
#pragma once

#include "estimators/estimate/estimate.h"
#include "estimators/graph/graph.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// Adds up the sources and the bounds of facts, and sets the range and the basis that follow.
void conclude_range(Estimate& estimate, std::vector<RangeSource> sources);

/// A range of which only is asked whether it goes beyond so many bytes of the process.
struct RangeLimit {
  Bytes process;
  std::size_t likely = 0;  ///< the trial that added most when last asked: it comes first
};

/// with_range() of pipeline.h, whose trials end where they add up to more than the limit (without the context's).
Result<Estimate> with_range_up_to(const Model& model, const Tape& tape, const TrainingSetup& setup,
                                  const Device& device, Estimate estimate, RangeLimit& limit,
                                  const Schedule* ran = nullptr);

/// The estimate of a schedule that ran, with segments at falling addresses (tape/reading.h).
Result<Estimate> estimate_at_falling_addresses(const Tape& tape, const Schedule& ran, const TrainingSetup& setup,
                                               const Device& device);

/// The sources with what the card's own context may take in place of another card's.
std::vector<RangeSource> on_card(std::vector<RangeSource> sources, const Device& device);

}  // namespace memplan
