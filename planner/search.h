// "What would fit?" Every answer is a setup that was estimated again, never a figure scaled from another one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "estimators/pipeline.h"

namespace memplan {

/// Bytes that must stay free on a device for the verdict `fits`.
using MarginOf = std::function<Bytes(const Device&)>;

struct LargestBatch {
  std::int64_t batch = 0;  ///< 0: not even a batch of one fits
  Bytes peak;              ///< process bytes at that batch; of batch 1 when none fits
  bool at_least = false;   ///< the search stopped at its upper end, 2^20: a larger one fits as well
};

/// The largest batch with the verdict `fits`, found by bisection. None when the file fixes the batch dimension.
/// `known` is the estimate of `setup` itself.
std::optional<LargestBatch> largest_batch(const Model& model, const TrainingSetup& setup, const Device& device,
                                          const MarginOf& margin, const Estimate& known);

/// A model whose setups can be compared: of a recording all of them are worked out from its calls, since a search
/// changes setups after the tape is made. Failure(usage) for a recording without calls.
Model searchable(Model model);

struct Card {
  Device device;
  Bytes peak;  ///< process bytes on that card: attention kernels, scratch sizes and context differ between cards
  Verdict verdict = Verdict::unknown;
};

/// The smallest cards of the device table with the verdict `fits`, by size, at most `count`; each was estimated.
std::vector<Card> smallest_cards(const Tape& tape, const TrainingSetup& setup, const MarginOf& margin,
                                 const Estimate& known, std::size_t count);

/// Another setup that was estimated beside the one asked for.
struct Alternative {
  std::string flags;  ///< what to add to the command: "--amp bf16"
  Bytes peak;
  Verdict verdict = Verdict::unknown;
  Bytes headroom;
};

Alternative alternative_of(std::string flags, const Estimate& estimate, const Device& device, Bytes margin);

/// What brings a setup that does not fit nearer to the device: each changes one thing, or two, that leaves the training
/// itself nearly as it is. Those that need less than `known`, the estimate of `setup` on its `tape`, by what they need.
/// `limit`: process bytes that the batch is split for, if the device itself would hold more.
std::vector<Alternative> smaller_changes(const Model& model, const Tape& tape, const TrainingSetup& setup,
                                         const Device& device, Bytes margin, const Estimate& known,
                                         std::optional<Bytes> limit);

}  // namespace memplan
