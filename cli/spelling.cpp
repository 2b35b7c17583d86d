#include "cli/spelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "cli/flags.h"

namespace memplan::cli {

namespace {

struct FieldFlag {
  Field field;
  std::string_view flag;
};

constexpr std::array field_flags{
    FieldFlag{Field::device, "gpu"},
    FieldFlag{Field::dims, "dim"},
    FieldFlag{Field::batch, "batch"},
    FieldFlag{Field::sequence, "seq"},
    FieldFlag{Field::inputs, "input"},
    FieldFlag{Field::mode, "mode"},
    FieldFlag{Field::precision, "precision"},
    FieldFlag{Field::autocast, "amp"},
    FieldFlag{Field::loss, "loss"},
    FieldFlag{Field::optimizer, "optimizer"},
    FieldFlag{Field::optimizer_impl, "optimizer-impl"},
    FieldFlag{Field::momentum, "momentum"},
    FieldFlag{Field::accumulate, "accumulate"},
    FieldFlag{Field::clip_grad_norm, "clip"},
    FieldFlag{Field::zero_grad, "zero-grad"},
    FieldFlag{Field::attention, "attention"},
    FieldFlag{Field::allocator, "alloc-conf"},
    FieldFlag{Field::checkpoint, "checkpoint"},
    FieldFlag{Field::checkpoint_save, "checkpoint-save"},
    FieldFlag{Field::offload, "offload"},
    FieldFlag{Field::lora, "lora"},
    FieldFlag{Field::lora_quantized, "qlora"},
    FieldFlag{Field::kv_cache, "kv-cache"},
    FieldFlag{Field::channels_last, "channels-last"},
    FieldFlag{Field::keep_loss_history, "loss-history"},
    FieldFlag{Field::empty_cache, "empty-cache"},
    FieldFlag{Field::frozen, "freeze"},
    FieldFlag{Field::steps, "steps"},
    FieldFlag{Field::gpus, "gpus"},
    FieldFlag{Field::data_parallel, "dp"},
    FieldFlag{Field::ddp, "ddp"},
    FieldFlag{Field::gradient_as_bucket_view, "bucket-view"},
    FieldFlag{Field::bucket_cap, "bucket-cap"},
    FieldFlag{Field::zero, "zero"},
    FieldFlag{Field::overlap_communication, "overlap-comm"},
    FieldFlag{Field::reduce_bucket, "reduce-bucket"},
    FieldFlag{Field::megatron, "megatron"},
    FieldFlag{Field::distributed_optimizer, "dist-opt"},
    FieldFlag{Field::fsdp, "fsdp"},
    FieldFlag{Field::keep_gathered, "no-reshard"},
    FieldFlag{Field::shard_size, "hsdp"},
    FieldFlag{Field::param_dtype, "fsdp-dtype"},
    FieldFlag{Field::reduce_dtype, "reduce-dtype"},
    FieldFlag{Field::blocks, "blocks"},
    FieldFlag{Field::tensor_parallel, "tp"},
    FieldFlag{Field::sequence_parallel, "sp"},
    FieldFlag{Field::pipeline_parallel, "pp"},
    FieldFlag{Field::pipeline_schedule, "pp-schedule"},
    FieldFlag{Field::pipeline_split, "pp-split"},
    FieldFlag{Field::micro_batches, "micro-batches"},
    FieldFlag{Field::context_parallel, "cp"},
    FieldFlag{Field::expert_parallel, "ep"},
    FieldFlag{Field::prices, "prices"},
    FieldFlag{Field::reference_program, "program"},
    FieldFlag{Field::observed_ranks, "world"},
};
static_assert([] {
  for (std::size_t i = 0; i < field_flags.size(); ++i)
    if (field_flags[i].field != static_cast<Field>(i)) return false;
  return field_flags.size() == field_names.size();
}());

std::string flag_text(Field field, std::string_view value) {
  return fmt::format("--{}{}{}", flag_of(field), value.empty() ? "" : " ", value);
}

/// 8, 0.5, and the N of "tp=N"
bool stands_bare(std::string_view value) {
  return value == "N" ||
         std::all_of(value.begin(), value.end(), [](unsigned char c) { return std::isdigit(c) != 0 || c == '.'; });
}

std::string keyword_text(Field field, std::string_view value) {
  const Flag* flag = find_flag(flag_of(field));
  // What estimate() does not take belongs to a command.
  if (!flag || !(flag->commands & in_estimate)) return flag_text(field, value);
  std::string keyword(flag->name);
  std::replace(keyword.begin(), keyword.end(), '-', '_');
  if (flag->value.empty()) return keyword + "=True";
  const std::size_t equals = value.find('=');
  if (field == Field::dims && equals != std::string_view::npos)
    return fmt::format("{}={{\"{}\": {}}}", keyword, value.substr(0, equals), value.substr(equals + 1));
  return keyword + "=" + (value.empty() || stands_bare(value) ? std::string(value) : fmt::format("\"{}\"", value));
}

}  // namespace

std::string_view flag_of(Field field) { return field_flags[static_cast<std::size_t>(field)].flag; }

std::string as_flags(std::string_view message) { return spelled(message, flag_text); }

std::string as_keywords(std::string_view message) {
  const std::size_t command = std::min(message.find(": memplan "), message.size());
  return spelled(message.substr(0, command), keyword_text) + as_flags(message.substr(command));
}

Error spelled_for_caller(Error error) {
  const char* keywords = std::getenv("MEMPLAN_KEYWORDS");
  const auto spell = keywords && *keywords ? as_keywords : as_flags;
  for (std::string* text : {&error.what, &error.where, &error.hint}) *text = spell(*text);
  return error;
}

}  // namespace memplan::cli
