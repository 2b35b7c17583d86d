// Ranges in a search over many setups of one model: priced once for setups that run the same ops.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "estimators/estimate/estimate.h"
#include "planner/tapes.h"

namespace memplan {

/// A range costs several estimates (estimators/estimate/range.h). A setup that fits with the range of another one,
/// which runs the same ops on no fewer samples, needs none of its own to be compared; what is answered gets its own.
class SharedRanges {
 public:
  /// What of a setup says which range it may share.
  struct Place {
    std::vector<std::uint8_t> ops;  ///< the same for setups that run the same ops
    std::int64_t batch = 0;         ///< samples of a micro-batch
    std::string flags;              ///< of the setup, which no other one has
  };

  SharedRanges(Tapes& tapes, const Device& device, Bytes margin) : tapes_(tapes), device_(device), margin_(margin) {}

  /// The estimate, with a range where it would fit without one. Failure as of estimate_planned_tape().
  Estimate to_compare(const TrainingSetup& setup, const Place& place);
  /// The same with its own range, of a setup that may have more micro-batches than the one that was compared.
  Estimate to_answer(const TrainingSetup& setup, const std::string& flags);

  /// The range of a setup that was estimated elsewhere.
  void know(const std::string& flags, const std::vector<RangeSource>& sources) { own_[flags] = sources; }
  bool has_own(const std::string& flags) const { return own_.count(flags) > 0; }

 private:
  struct Open {
    std::int64_t batch = 0;
    std::vector<RangeSource> sources;
  };

  Tapes& tapes_;
  const Device& device_;
  const Bytes margin_;
  std::map<std::vector<std::uint8_t>, Open> open_;       ///< by the ops
  std::map<std::string, std::vector<RangeSource>> own_;  ///< by flags
};

}  // namespace memplan
