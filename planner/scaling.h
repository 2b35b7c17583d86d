// How the peak grows with the batch and with the sequence, and what the same step needs on every card.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/search.h"

namespace memplan {

/// Bytes of the process at one size of a dimension; an estimate of its own, never a point on a fitted line.
struct ScalePoint {
  std::int64_t size = 0;
  Bytes peak, requested;
  Verdict verdict = Verdict::unknown;
};

struct ScaleCurve {
  std::string dimension;           ///< "batch" or "sequence"
  std::int64_t here = 0;           ///< the size of the setup itself
  std::vector<ScalePoint> points;  ///< by size
};

/// Curves of the dimensions that the file leaves open: powers of two around the size of the setup, at most `count`
/// points each, none beyond the first that takes more than twice the device. Sizes that the model refuses are left out.
std::vector<ScaleCurve> scale(const Model& model, const std::vector<BoundDim>& bound, const TrainingSetup& setup,
                              const Device& device, Bytes margin, std::size_t count);

/// Every card of the device table, by size. Cards that run the same kernels share a replay, and one whose context and
/// requested bytes exceed its total is not replayed again: it cannot fit.
std::vector<Card> every_card(const Tape& tape, const TrainingSetup& setup, const MarginOf& margin);

}  // namespace memplan
