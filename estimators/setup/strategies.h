// The ways in which data-parallel ranks work together: one row says what a way divides among them and how it is called.
// Its program is a row of runtime/torch/wrappers/table.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "estimators/base/error.h"
#include "estimators/setup/field.h"

namespace memplan {

/// What the data-parallel ranks share out among themselves. `none` is DistributedDataParallel; zero* are DeepSpeed's
/// stages; `fsdp` is torch.distributed.fsdp.fully_shard (FSDP2) on every block and on the root. `megatron` is
/// Megatron-LM's runtime, which shares nothing out, `megatron_dist` the same with its distributed optimizer; both also
/// with one rank.
enum class Sharding : std::uint8_t { none, zero1, zero2, zero3, fsdp, megatron, megatron_dist };

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
  const char* name;               ///< of reports
  Field field = Field::sharding;  ///< that chooses it; of most together, where it has none of its own
  const char* title;              ///< in sentences
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
  std::string choice() const {
    return stage > 0 ? setting(field, stage) : setting(field, field == Field::sharding ? name : "");
  }
  bool shares_out() const { return weights || gradients || state; }
};

inline constexpr std::array strategy_table{
    DataStrategy{.kind = Sharding::none, .name = "ddp", .field = Field::ddp, .title = "DDP", .buckets = true},
    DataStrategy{.kind = Sharding::fsdp,
                 .name = "fsdp",
                 .field = Field::fsdp,
                 .title = "FSDP2",
                 .weights = true,
                 .gradients = true,
                 .state = true,
                 .units = true,
                 .traffic = DataTraffic::weights_gathered},
    DataStrategy{.kind = Sharding::zero1,
                 .name = "zero1",
                 .field = Field::zero,
                 .title = "ZeRO-1",
                 .framework = Framework::deepspeed,
                 .stage = 1,
                 .state = true,
                 .fp32_state = true,
                 .converts = true,
                 .accumulates = false,
                 .traffic = DataTraffic::weights_at_end},
    DataStrategy{.kind = Sharding::zero2,
                 .name = "zero2",
                 .field = Field::zero,
                 .title = "ZeRO-2",
                 .framework = Framework::deepspeed,
                 .stage = 2,
                 .gradients = true,
                 .state = true,
                 .fp32_state = true,
                 .converts = true,
                 .accumulates = false,
                 .traffic = DataTraffic::weights_at_end},
    DataStrategy{.kind = Sharding::zero3,
                 .name = "zero3",
                 .field = Field::zero,
                 .title = "ZeRO-3",
                 .framework = Framework::deepspeed,
                 .stage = 3,
                 .weights = true,
                 .gradients = true,
                 .state = true,
                 .fp32_state = true,
                 .converts = true,
                 .accumulates = false,
                 .traffic = DataTraffic::weights_gathered},
    DataStrategy{.kind = Sharding::megatron,
                 .name = "megatron",
                 .field = Field::megatron,
                 .title = "Megatron-LM",
                 .framework = Framework::megatron,
                 .own_gradients = true,
                 .fp32_state = true,
                 .lone_rank = true,
                 .traffic = DataTraffic::sums_at_end},
    DataStrategy{.kind = Sharding::megatron_dist,
                 .name = "megatron-dist-opt",
                 .field = Field::distributed_optimizer,
                 .title = "Megatron-LM",
                 .framework = Framework::megatron,
                 .state = true,
                 .own_gradients = true,
                 .fp32_state = true,
                 .lone_rank = true,
                 .traffic = DataTraffic::sums_at_end}};

/// All of them.
constexpr std::span<const DataStrategy> data_strategies() { return strategy_table; }

inline const DataStrategy& strategy_of(Sharding sharding) {
  for (const DataStrategy& s : strategy_table)
    if (s.kind == sharding) return s;
  fail(ErrorKind::internal, "a way of sharding has no row");
}

}  // namespace memplan
