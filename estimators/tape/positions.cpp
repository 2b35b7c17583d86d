#include "estimators/tape/positions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "estimators/base/error.h"
#include "estimators/setup/field.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// Ops that hand every position on as it is.
constexpr std::array same_numbers{"aten::unsqueeze",   "aten::squeeze",    "aten::view",       "aten::reshape",
                                  "aten::expand",      "aten::expand_as",  "aten::to",         "aten::_to_copy",
                                  "aten::clone",       "aten::contiguous", "aten::alias",      "aten::detach",
                                  "aten::detach_copy", "aten::repeat",     "aten::lift_fresh", "aten::unsqueeze_"};

using Makers = std::unordered_map<std::int32_t, const Call*>;

std::string_view base_of(const Call& call) { return std::string_view(call.op).substr(0, call.op.find('.')); }

/// The least that the largest position can be, plus one; nothing where they are not plainly counted up.
std::optional<std::int64_t> positions(ValueId id, const Makers& makers) {
  std::int64_t added = 0;
  for (int step = 0; step < 32; ++step) {
    const auto made = makers.find(id.index);
    if (made == makers.end()) return std::nullopt;
    const Call& call = *made->second;
    const std::string_view op = base_of(call);
    if (op == "aten::arange") {
      if (call.known_shapes.size() != 1 || call.known_shapes[0].second.size() != 1) return std::nullopt;
      return call.known_shapes[0].second[0] + added;
    }
    if (op == "aten::add") {
      const auto* number = call.args.size() == 2 ? std::get_if<std::int64_t>(&call.args[1].value) : nullptr;
      if (!number || *number < 0 || !call.kwargs.empty()) return std::nullopt;
      added += *number;
    } else if (std::find(same_numbers.begin(), same_numbers.end(), op) == same_numbers.end()) {
      return std::nullopt;
    }
    id = value_at(call, 0);
    if (!id.valid()) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

void check_positions(const Tape& tape) {
  Makers makers;
  for (const Call& call : tape.calls) {
    for (const ValueId out : call.outputs) makers.emplace(out.index, &call);
    if (base_of(call) != "aten::embedding") continue;
    const ValueId table = value_at(call, 0), index = value_at(call, 1);
    if (!table.valid() || !index.valid()) continue;
    const TapeValue& weight = tape.values[static_cast<std::size_t>(table.index)];
    if (weight.kind == ValueKind::computed || weight.sizes.size() != 2) continue;
    const std::int64_t rows = weight.sizes[0];
    const auto wanted = positions(index, makers);
    if (!wanted || *wanted <= rows) continue;
    fail(ErrorKind::usage,
         fmt::format(
             "the model has {} positions ({}), and the sequence needs {}; PyTorch stops with an index out of range",
             rows, weight.name, *wanted),
         setting(Field::sequence), fmt::format("use {} or less", setting(Field::sequence, std::to_string(rows))));
  }
}

}  // namespace memplan
