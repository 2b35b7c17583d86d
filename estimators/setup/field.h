// What a user chooses about a run, as messages of the library name it.
//
// The library does not know by which words people set a field: a command line has flags, Python has keywords. A message
// holds a mark for the field, and whoever shows the message replaces the marks by words of its own (spelled()).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace memplan {

/// Members of TrainingSetup and ParallelSetup, and what else a caller gives along with them. Where the values of a
/// member are strategies of their own (`sharding`, `lora`), every one of them has a field.
enum class Field : std::uint8_t {
  device,
  dims,
  batch,
  sequence,
  shortest_sequence,
  inputs,
  mode,
  precision,
  autocast,
  loss,
  optimizer,
  optimizer_impl,
  momentum,
  accumulate,
  clip_grad_norm,
  zero_grad,
  attention,
  allocator,
  checkpoint,
  checkpoint_save,
  offload,
  lora,
  lora_quantized,
  kv_cache,
  channels_last,
  keep_loss_history,
  empty_cache,
  compile,
  activation_memory_budget,
  frozen,
  steps,
  torch,  ///< the version of PyTorch
  runtime,
  runtime_option,
  ort_version,
  environment,  ///< a variable of the environment that PyTorch runs in
  gpus,
  data_parallel,
  sharding,  ///< a way of data parallelism that has no field of its own: its name is the value
  ddp,
  gradient_as_bucket_view,
  bucket_cap,
  lazy_buckets,
  zero,
  overlap_communication,
  reduce_bucket,
  megatron,
  distributed_optimizer,
  fsdp,
  keep_gathered,
  shard_size,
  reduce_buffers,
  keep_unsharded,
  param_dtype,
  reduce_dtype,
  blocks,
  tensor_parallel,
  sequence_parallel,
  loss_parallel,
  pipeline_parallel,
  pipeline_schedule,
  pipeline_split,
  micro_batches,
  context_parallel,
  expert_parallel,
  prices,             ///< of cards, for the planner
  reference_program,  ///< the script whose memory is estimated
  observed_ranks,     ///< ranks of a script that runs on the emulated device
};

struct FieldName {
  Field field;
  std::string_view name;
};

inline constexpr std::array field_names{
    FieldName{Field::device, "device"},
    FieldName{Field::dims, "dims"},
    FieldName{Field::batch, "batch"},
    FieldName{Field::sequence, "sequence"},
    FieldName{Field::shortest_sequence, "shortest_sequence"},
    FieldName{Field::inputs, "inputs"},
    FieldName{Field::mode, "mode"},
    FieldName{Field::precision, "precision"},
    FieldName{Field::autocast, "autocast"},
    FieldName{Field::loss, "loss"},
    FieldName{Field::optimizer, "optimizer"},
    FieldName{Field::optimizer_impl, "optimizer_impl"},
    FieldName{Field::momentum, "momentum"},
    FieldName{Field::accumulate, "accumulate"},
    FieldName{Field::clip_grad_norm, "clip_grad_norm"},
    FieldName{Field::zero_grad, "zero_grad"},
    FieldName{Field::attention, "attention"},
    FieldName{Field::allocator, "allocator"},
    FieldName{Field::checkpoint, "checkpoint"},
    FieldName{Field::checkpoint_save, "checkpoint_save"},
    FieldName{Field::offload, "offload"},
    FieldName{Field::lora, "lora"},
    FieldName{Field::lora_quantized, "lora_quantized"},
    FieldName{Field::kv_cache, "kv_cache"},
    FieldName{Field::channels_last, "channels_last"},
    FieldName{Field::keep_loss_history, "keep_loss_history"},
    FieldName{Field::empty_cache, "empty_cache"},
    FieldName{Field::compile, "compile"},
    FieldName{Field::activation_memory_budget, "activation_memory_budget"},
    FieldName{Field::frozen, "frozen"},
    FieldName{Field::steps, "steps"},
    FieldName{Field::torch, "torch"},
    FieldName{Field::runtime, "runtime"},
    FieldName{Field::runtime_option, "runtime_option"},
    FieldName{Field::ort_version, "ort_version"},
    FieldName{Field::environment, "environment"},
    FieldName{Field::gpus, "gpus"},
    FieldName{Field::data_parallel, "data_parallel"},
    FieldName{Field::sharding, "sharding"},
    FieldName{Field::ddp, "ddp"},
    FieldName{Field::gradient_as_bucket_view, "gradient_as_bucket_view"},
    FieldName{Field::bucket_cap, "bucket_cap"},
    FieldName{Field::lazy_buckets, "lazy_buckets"},
    FieldName{Field::zero, "zero"},
    FieldName{Field::overlap_communication, "overlap_communication"},
    FieldName{Field::reduce_bucket, "reduce_bucket"},
    FieldName{Field::megatron, "megatron"},
    FieldName{Field::distributed_optimizer, "distributed_optimizer"},
    FieldName{Field::fsdp, "fsdp"},
    FieldName{Field::keep_gathered, "keep_gathered"},
    FieldName{Field::shard_size, "shard_size"},
    FieldName{Field::reduce_buffers, "reduce_buffers"},
    FieldName{Field::keep_unsharded, "keep_unsharded"},
    FieldName{Field::param_dtype, "param_dtype"},
    FieldName{Field::reduce_dtype, "reduce_dtype"},
    FieldName{Field::blocks, "blocks"},
    FieldName{Field::tensor_parallel, "tensor_parallel"},
    FieldName{Field::sequence_parallel, "sequence_parallel"},
    FieldName{Field::loss_parallel, "loss_parallel"},
    FieldName{Field::pipeline_parallel, "pipeline_parallel"},
    FieldName{Field::pipeline_schedule, "pipeline_schedule"},
    FieldName{Field::pipeline_split, "pipeline_split"},
    FieldName{Field::micro_batches, "micro_batches"},
    FieldName{Field::context_parallel, "context_parallel"},
    FieldName{Field::expert_parallel, "expert_parallel"},
    FieldName{Field::prices, "prices"},
    FieldName{Field::reference_program, "reference_program"},
    FieldName{Field::observed_ranks, "observed_ranks"},
};
static_assert([] {
  for (std::size_t i = 0; i < field_names.size(); ++i)
    if (field_names[i].field != static_cast<Field>(i)) return false;
  return field_names.size() == static_cast<std::size_t>(Field::observed_ranks) + 1;
}());

constexpr std::string_view name_of(Field field) { return field_names[static_cast<std::size_t>(field)].name; }

/// The mark of a field in a message; with a value, that of the field set to it: "use " + setting(Field::precision,
/// "bf16").
std::string setting(Field field, std::string_view value = {});
inline std::string setting(Field field, std::int64_t value) { return setting(field, std::to_string(value)); }

/// How one setting is written, as in "--tp 2".
using Spelling = std::function<std::string(Field field, std::string_view value)>;

/// A message with all of its marks replaced.
std::string spelled(std::string_view message, const Spelling& spelling);

/// The same with the fields' own names, as in "tensor_parallel=2": for readers of the library itself.
std::string plainly_spelled(std::string_view message);

}  // namespace memplan
