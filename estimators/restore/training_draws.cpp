#include "estimators/restore/training_draws.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "estimators/restore/passes.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

constexpr std::array<std::string_view, 12> draws{"aten::rand",      "aten::randn",      "aten::randint",
                                                 "aten::rand_like", "aten::randn_like", "aten::randint_like",
                                                 "aten::bernoulli", "aten::bernoulli_", "aten::randperm",
                                                 "aten::normal",    "aten::uniform",    "aten::multinomial"};
/// Ops that put a draw and another tensor together, element by element.
constexpr std::array<std::string_view, 4> meetings{"aten::mul", "aten::add", "aten::sub", "aten::where"};

using Sizes = std::vector<std::int64_t>;

/// What the file says of a value's sizes; null where it says nothing.
const Sizes* known_sizes(const Tape& tape, const std::vector<std::int32_t>& maker, ValueId id) {
  const auto v = static_cast<std::size_t>(id.index);
  if (maker[v] < 0) return tape.values[v].kind == ValueKind::computed ? nullptr : &tape.values[v].sizes;
  const Call& call = tape.calls[static_cast<std::size_t>(maker[v])];
  const auto place = static_cast<std::size_t>(std::ranges::find(call.outputs, id) - call.outputs.begin());
  return place < call.known_shapes.size() ? &call.known_shapes[place].second : nullptr;
}

bool is_alike(const Tape& tape, const std::vector<std::int32_t>& maker, ValueId a, ValueId b) {
  const Sizes *x = known_sizes(tape, maker, a), *y = known_sizes(tape, maker, b);
  return x && y && *x == *y;
}

bool is_one_of(std::span<const std::string_view> ops, const Call& call) {
  return std::ranges::find(ops, std::string_view(call.op).substr(0, call.op.find('.'))) != ops.end();
}

struct TrainingDraws {
  std::vector<bool> drawn;  ///< by value: worked out of draws alone
  /// By value of a result: the one tensor that a draw is put together with there, of the result's own sizes.
  std::unordered_map<std::int32_t, ValueId> met;
};

TrainingDraws draws_of(const Tape& tape) {
  const std::vector<std::int32_t> maker = makers_of(tape);
  TrainingDraws out{std::vector<bool>(tape.values.size(), false), {}};
  std::vector<bool>& drawn = out.drawn;
  std::vector<bool> numbers(tape.values.size(), false);  // by value: worked out of none at all, "arange"
  for (const Call& call : tape.calls) {
    // These read a tensor's sizes, not its numbers; `x.expand_as(y)` y's.
    const bool like = call.op.find("_like") != std::string::npos || call.op.starts_with("aten::sym_") ||
                      call.op.starts_with("aten::new_");
    const ValueId sized = call.op == "aten::expand_as" ? value_at(call, 1) : ValueId{};
    bool any = is_one_of(draws, call);
    std::vector<ValueId> others;
    for_each_value(call, [&](ValueId id) {
      if (id == sized) return;
      const auto v = static_cast<std::size_t>(id.index);
      any = any || drawn[v];
      if (!drawn[v] && !numbers[v] && !like) others.push_back(id);
    });
    if (any && others.size() == 1 && call.outputs.size() == 1 && is_one_of(meetings, call) &&
        is_alike(tape, maker, others[0], call.outputs[0]))
      out.met[call.outputs[0].index] = others[0];
    if (!others.empty()) continue;
    for (const ValueId id : call.outputs)
      if (id.valid()) (any ? drawn : numbers)[static_cast<std::size_t>(id.index)] = true;
  }
  return out;
}

}  // namespace

bool has_training_draws(const Tape& tape) { return tape.exported.in_training && !draws_of(tape).met.empty(); }

void read_training_draws(Tape& tape) {
  if (!tape.exported.in_training) return;
  const auto [drawn, met] = draws_of(tape);
  if (tape.reading.training_draws) {
    if (!met.empty())
      tape.notes.push_back({{},
                            "random numbers are drawn as in training, where the file was exported",
                            Evidence::assumed,
                            About::mode,
                            {},
                            {},
                            -1,
                            std::ssize(met),
                            {}});
    return;
  }
  const auto stands_for = [&met = met](ValueId id) {
    for (auto it = met.find(id.index); it != met.end(); it = met.find(id.index)) id = it->second;
    return id;
  };
  for (Call& c : tape.calls) replace_values(c, [&](ValueId id) { return Arg{stands_for(id)}; });
  for (ValueId& id : tape.outputs) id = stands_for(id);
  remove_unused_calls(tape, [&drawn = drawn, &met = met](const Call& call, std::size_t) {
    return std::ranges::any_of(call.outputs, [&](ValueId id) {
      return id.valid() && (drawn[static_cast<std::size_t>(id.index)] || met.contains(id.index));
    });
  });
}

}  // namespace memplan
