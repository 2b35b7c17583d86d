#include "estimators/setup/strategies.h"

#include "estimators/base/error.h"

namespace memplan {

namespace {

const DataStrategy strategies[] = {
    {.kind = Sharding::none, .field = Field::ddp, .title = "DDP", .buckets = true},
    {.kind = Sharding::fsdp,
     .field = Field::fsdp,
     .title = "FSDP2",
     .weights = true,
     .gradients = true,
     .state = true,
     .units = true,
     .traffic = DataTraffic::weights_gathered},
    {.kind = Sharding::zero1,
     .field = Field::zero,
     .title = "ZeRO-1",
     .framework = Framework::deepspeed,
     .stage = 1,
     .state = true,
     .fp32_state = true,
     .converts = true,
     .accumulates = false,
     .traffic = DataTraffic::weights_at_end},
    {.kind = Sharding::zero2,
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
    {.kind = Sharding::zero3,
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
    {.kind = Sharding::megatron,
     .field = Field::megatron,
     .title = "Megatron-LM",
     .framework = Framework::megatron,
     .own_gradients = true,
     .fp32_state = true,
     .lone_rank = true,
     .traffic = DataTraffic::sums_at_end},
    {.kind = Sharding::megatron_dist,
     .field = Field::distributed_optimizer,
     .title = "Megatron-LM",
     .framework = Framework::megatron,
     .state = true,
     .own_gradients = true,
     .fp32_state = true,
     .lone_rank = true,
     .traffic = DataTraffic::sums_at_end},
};

}  // namespace

std::span<const DataStrategy> data_strategies() { return strategies; }

const DataStrategy& strategy_of(Sharding sharding) {
  for (const DataStrategy& s : strategies)
    if (s.kind == sharding) return s;
  fail(ErrorKind::internal, "a way of sharding has no row");
}

}  // namespace memplan
