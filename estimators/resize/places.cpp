#include "estimators/resize/places.h"

#include <array>
#include <string_view>

namespace memplan::resizing {

namespace {

/// By the argument's name in native_functions.yaml.
struct Said {
  std::string_view argument;
  Meaning meaning;
};
constexpr std::array by_argument{
    Said{"size", Meaning::made},        Said{"shape", Meaning::divided},    Said{"sizes", Meaning::divided},
    Said{"repeats", Meaning::made},     Said{"end", Meaning::free},         Said{"length", Meaning::end},
    Said{"split_size", Meaning::free},  Said{"split_sizes", Meaning::free}, Said{"output_size", Meaning::free},
    Said{"num_samples", Meaning::free}, Said{"steps", Meaning::free},       Said{"n", Meaning::free},
};

/// Ops in whose rows the name of the argument means something else.
struct Otherwise {
  std::string_view op, argument;
  Meaning meaning;
};
constexpr std::array by_op{
    Otherwise{"aten::view", "size", Meaning::divided},      Otherwise{"aten::_unsafe_view", "size", Meaning::divided},
    Otherwise{"aten::expand", "size", Meaning::expanded},   Otherwise{"aten::slice", "end", Meaning::end},
    Otherwise{"memplan::index_slice", "end", Meaning::end}, Otherwise{"aten::tile", "dims", Meaning::made},
};

const Meaning* meaning_of(std::string_view op, std::string_view argument) {
  op = op.substr(0, op.find('.'));
  for (const Otherwise& o : by_op)
    if (o.op == op && o.argument == argument) return &o.meaning;
  for (const Said& s : by_argument)
    if (s.argument == argument) return &s.meaning;
  return nullptr;
}

}  // namespace

const Arg* argument_of(const Call& call, const Row& row, std::int32_t argument) {
  const auto at = static_cast<std::size_t>(argument);
  if (at < call.args.size()) return &call.args[at];
  for (const auto& [name, arg] : call.kwargs)
    if (at < row.arguments.size() && name == row.arguments[at]) return &arg;
  return nullptr;
}

Arg* argument_of(Call& call, const Row& row, std::int32_t argument) {
  return const_cast<Arg*>(argument_of(std::as_const(call), row, argument));
}

std::vector<Number> sizes_in(const Call& call, std::int32_t index, const Row& row) {
  std::vector<Number> out;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(row.arguments.size()); ++i) {
    const Meaning* meaning = meaning_of(call.op, row.arguments[static_cast<std::size_t>(i)]);
    const Arg* arg = meaning ? argument_of(call, row, i) : nullptr;
    if (!arg) continue;
    if (const auto* n = std::get_if<std::int64_t>(&arg->value)) out.push_back({{index, i, -1}, *meaning, *n});
    if (const auto* list = std::get_if<Arg::List>(&arg->value))
      for (std::size_t k = 0; k < list->size(); ++k)
        if (const auto* n = std::get_if<std::int64_t>(&(*list)[k].value))
          out.push_back({{index, i, static_cast<std::int32_t>(k)}, *meaning, *n});
  }
  return out;
}

void put(Call& call, const Row& row, const Place& place, std::int64_t number) {
  Arg* arg = argument_of(call, row, place.argument);
  if (!arg) return;
  if (place.item < 0)
    arg->value = number;
  else
    std::get<Arg::List>(arg->value).at(static_cast<std::size_t>(place.item)).value = number;
}

}  // namespace memplan::resizing
