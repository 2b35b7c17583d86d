#include "cli/flags/spelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "cli/flags/flags.h"

namespace memplan::cli {

namespace {

struct FieldFlag {
  Field field;
  std::string_view flag;
};

/// Flags that are called otherwise than their field.
constexpr std::array field_flags{
    FieldFlag{Field::device, "gpu"},
    FieldFlag{Field::dims, "dim"},
    FieldFlag{Field::sequence, "seq"},
    FieldFlag{Field::shortest_sequence, "seq-from"},
    FieldFlag{Field::inputs, "input"},
    FieldFlag{Field::autocast, "amp"},
    FieldFlag{Field::clip_grad_norm, "clip"},
    FieldFlag{Field::allocator, "alloc-conf"},
    FieldFlag{Field::lora_quantized, "qlora"},
    FieldFlag{Field::keep_loss_history, "loss-history"},
    FieldFlag{Field::frozen, "freeze"},
    FieldFlag{Field::runtime_option, "ort"},
    FieldFlag{Field::environment, "env"},
    FieldFlag{Field::data_parallel, "dp"},
    FieldFlag{Field::gradient_as_bucket_view, "bucket-view"},
    FieldFlag{Field::overlap_communication, "overlap-comm"},
    FieldFlag{Field::distributed_optimizer, "dist-opt"},
    FieldFlag{Field::keep_gathered, "no-reshard"},
    FieldFlag{Field::shard_size, "hsdp"},
    FieldFlag{Field::param_dtype, "fsdp-dtype"},
    FieldFlag{Field::tensor_parallel, "tp"},
    FieldFlag{Field::sequence_parallel, "sp"},
    FieldFlag{Field::pipeline_parallel, "pp"},
    FieldFlag{Field::pipeline_schedule, "pp-schedule"},
    FieldFlag{Field::pipeline_split, "pp-split"},
    FieldFlag{Field::context_parallel, "cp"},
    FieldFlag{Field::expert_parallel, "ep"},
    FieldFlag{Field::reference_program, "program"},
    FieldFlag{Field::observed_ranks, "world"},
};

std::string flag_text(Field field, std::string_view value) {
  if (field == Field::sharding) return fmt::format("--{}", value);
  return fmt::format("--{}{}{}", flag_of(field), value.empty() ? "" : " ", value);
}

/// 8, 0.5, and the N of "tp=N"
bool stands_bare(std::string_view value) {
  return value == "N" ||
         std::all_of(value.begin(), value.end(), [](unsigned char c) { return std::isdigit(c) != 0 || c == '.'; });
}

std::string keyword_text(Field field, std::string_view value) {
  const Flag* flag = find_flag(field == Field::sharding ? value : flag_of(field));
  // What estimate() does not take belongs to a command.
  if (!flag || !(flag->commands & in_estimate)) return flag_text(field, value);
  std::string keyword(flag->name);
  std::replace(keyword.begin(), keyword.end(), '-', '_');
  if (flag->value.empty()) return keyword + "=True";
  const std::size_t equals = value.find('=');
  if (field == Field::dims && equals != std::string_view::npos)
    return fmt::format("{}={{\"{}\": {}}}", keyword, value.substr(0, equals), value.substr(equals + 1));
  if (field == Field::environment && equals != std::string_view::npos)
    return fmt::format("{}={{\"{}\": \"{}\"}}", keyword, value.substr(0, equals), value.substr(equals + 1));
  return keyword + "=" + (value.empty() || stands_bare(value) ? std::string(value) : fmt::format("\"{}\"", value));
}

}  // namespace

std::string_view flag_of(Field field) {
  for (const FieldFlag& row : field_flags)
    if (row.field == field) return row.flag;
  // The others are called like their field, with dashes.
  for (const Flag& flag : flags())
    if (std::equal(flag.name.begin(), flag.name.end(), name_of(field).begin(), name_of(field).end(),
                   [](char letter, char of_field) { return letter == (of_field == '_' ? '-' : of_field); }))
      return flag.name;
  return name_of(field);
}

std::optional<Field> field_of(std::string_view flag) {
  for (const FieldName& row : field_names)
    if (flag_of(row.field) == flag) return row.field;
  return std::nullopt;
}

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
