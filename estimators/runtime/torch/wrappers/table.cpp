// The program of each way of data parallelism: a new one is a file of this folder and a row here, and what it divides a
// row of setup/strategies.cpp.
#include "estimators/base/error.h"
#include "estimators/runtime/torch/wrappers/wrapper.h"

namespace memplan {

MakeWrapper wrap_ddp, wrap_fsdp, wrap_megatron, wrap_zero12, wrap_zero3;
Tensor linear_of_zero3(Run& run, const Tensor& input, const Tensor& weight, const Tensor& bias);

namespace {

const WrapperRow wrapper_rows[] = {
    {.kind = Sharding::none, .make = wrap_ddp},
    {.kind = Sharding::zero1, .make = wrap_zero12, .casts_buffers = false, .clips = true, .deepspeed_adam = true},
    {.kind = Sharding::zero2, .make = wrap_zero12, .casts_buffers = false, .clips = true, .deepspeed_adam = true},
    {.kind = Sharding::zero3,
     .make = wrap_zero3,
     .divides_at_once = true,
     .casts_buffers = false,
     .clips = true,
     .deepspeed_adam = true,
     .linear = linear_of_zero3},
    {.kind = Sharding::fsdp, .make = wrap_fsdp, .in_inference = true, .from_host = true, .plain_parameters = false},
    {.kind = Sharding::megatron,
     .make = wrap_megatron,
     .plain_parameters = false,
     .loss_in_model = true,
     .fused_adam = true},
    {.kind = Sharding::megatron_dist,
     .make = wrap_megatron,
     .plain_parameters = false,
     .loss_in_model = true,
     .fused_adam = true},
};

}  // namespace

const WrapperRow& wrapper_of(Sharding kind) {
  for (const WrapperRow& row : wrapper_rows)
    if (row.kind == kind) return row;
  fail(ErrorKind::internal, "a way of sharding has no wrapper");
}

}  // namespace memplan
