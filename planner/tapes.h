// Tapes that many setups of one model share: lowered once per batch, dtype and adapters, whole or with few blocks.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "estimators/estimate/estimate.h"
#include "estimators/pipeline.h"
#include "estimators/transforms/depth.h"

namespace memplan {

class Tapes {
 public:
  explicit Tapes(const Model& model) : model_(model) {}

  /// tape_of() of pipeline.h, of a tape of the model that setups share; several threads may ask. Failure as there.
  std::shared_ptr<const Tape> of(const TrainingSetup& setup);
  /// estimate_to_judge() of checkpointing/plan.h, of such a tape.
  Result<Estimate> estimate_to_judge(const TrainingSetup& setup, const Device& device, Bytes margin);
  /// The same with a range that is known: what is open of a setup that runs the same ops, which costs no more
  /// estimates.
  Result<Estimate> estimate_to_judge(const TrainingSetup& setup, const Device& device, Bytes margin,
                                     const std::vector<RangeSource>& open);

  /// The model's own tape for the setup (estimators/transforms/transforms.h). Failure as of tape_of_model.
  const Tape& whole(const TrainingSetup& setup);
  /// The tape of one rank with `blocks` blocks; 0: all. Failure where the model cannot be had with so few, and as of
  /// tape_of_rank.
  std::shared_ptr<const Tape> of_rank(const TrainingSetup& setup, std::int64_t blocks);
  Depth depth(const TrainingSetup& setup);

 private:
  std::shared_ptr<const Tape> of_model(const TrainingSetup& setup);
  std::shared_ptr<const Tape> made_for_rank(const TrainingSetup& setup, std::int64_t blocks);
  const Tape& shortened(const TrainingSetup& setup, std::int64_t blocks);

  const Model& model_;
  std::map<std::string, std::unique_ptr<const Tape>> whole_;
  /// Likewise, with what they were restored from; those that were asked for last.
  std::vector<std::pair<std::string, std::shared_ptr<const Tape>>> recent_;
  std::mutex lock_;  ///< of recent_
  std::map<std::pair<std::string, std::int64_t>, std::unique_ptr<const Tape>> short_;
  std::map<std::string, Depth> depths_;
  std::map<std::string, std::shared_ptr<const Tape>> cut_;  ///< by tensor parallelism, which is dear
};

}  // namespace memplan
