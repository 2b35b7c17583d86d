// One row for each way in which data-parallel ranks work together: what it divides among them and how it is called.
// Its program is a row of runtime/torch/wrappers/table.cpp.
#pragma once

#include <span>
#include <string>

#include "estimators/setup/field.h"
#include "estimators/setup/parallel.h"

namespace memplan {

/// Whose runtime trains the model.
enum class Framework : std::uint8_t { torch, deepspeed, megatron };

/// When gradients and weights go over the links.
enum class DataTraffic : std::uint8_t {
  sums_overlapped,  ///< gradients are summed while the backward pass runs
  sums_at_end,      ///< gradients, or parts of them and then weights, when it has ended
  weights_at_end,   ///< gradients while it runs, the updated weights after the step
  weights_gathered  ///< weights before every use, gradients after it
};

struct DataStrategy {
  Sharding kind;
  Field field;        ///< that chooses it
  const char* title;  ///< in sentences
  Framework framework = Framework::torch;
  int stage = 0;                                           ///< of ZeRO
  bool weights = false, gradients = false, state = false;  ///< what the ranks of a shard group share out
  bool own_gradients = false;  ///< the framework adds gradients up in a buffer of its own, which stays
  bool fp32_state = false;     ///< the optimizer updates fp32 weights, whatever the model's are
  bool converts = false;       ///< a 16-bit model with fp32 copies is what it is for; it has no autocast
  bool accumulates = true;     ///< several micro-batches per step are modelled
  bool units = false;          ///< wraps block by block, with the options of fully_shard
  bool buckets = false;        ///< with the options of DDP's buckets
  bool lone_rank = false;      ///< makes a difference with one rank as well
  DataTraffic traffic = DataTraffic::sums_overlapped;

  /// Whether something has to choose it, and what: "zero=1".
  bool chosen() const { return kind != Sharding::none; }
  std::string choice() const { return stage > 0 ? setting(field, stage) : setting(field); }
  bool shares_out() const { return weights || gradients || state; }
};

/// All of them.
std::span<const DataStrategy> data_strategies();

const DataStrategy& strategy_of(Sharding sharding);
inline const DataStrategy& strategy_of(const ParallelSetup& p) { return strategy_of(p.sharding); }

inline bool in_deepspeed(const ParallelSetup& p) { return strategy_of(p).framework == Framework::deepspeed; }
inline bool in_megatron(const ParallelSetup& p) { return strategy_of(p).framework == Framework::megatron; }

}  // namespace memplan
