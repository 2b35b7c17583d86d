// Tensors that a module holds as plain attributes, in files that say where the program moves them.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "estimators/restore/host_numbers.h"
#include "estimators/restore/passes.h"
#include "estimators/restore/statement.h"
#include "estimators/tape/made_tensor.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// `self.table = self.table.to(device)` keeps the copy.
bool keeps_copy(const Call& call) {
  for (const auto& names : parse_statement(call.source).targets)
    for (const std::string_view n : names)
      if (n.find('.') != n.npos) return true;
  return false;
}

/// Constants and what is made of nothing but them, in groups of what meets: a group is on the CPU as a whole, or not at
/// all.
class HostSide {
 public:
  explicit HostSide(const Tape& tape)
      : group_(tape.values.size(), -1), number_(tape.values.size(), false), call_group_(tape.calls.size(), -1) {
    for (std::size_t v = 0; v < tape.values.size(); ++v)
      if (const TapeValue& value = tape.values[v];
          value.kind == ValueKind::constant && !value.sizes.empty() && !value.on_host) {
        group_[v] = static_cast<std::int32_t>(groups_.size());
        groups_.push_back({group_[v]});
      }
    for (std::size_t i = 0; i < tape.calls.size(); ++i) follow(tape.calls[i], call_group_[i]);
    for (const ValueId id : tape.outputs)
      if (id.valid()) need(id);
  }

  bool call(std::size_t i) { return is_on_host(call_group_[i]); }
  bool value(ValueId id) { return id.valid() && is_on_host(group_of(id)); }

 private:
  struct Group {
    std::int32_t parent = -1;
    bool moved = false;   ///< to the GPU, by the program
    bool needed = false;  ///< there, by an op or a line that keeps it
  };

  std::int32_t group_of(ValueId id) const { return group_[static_cast<std::size_t>(id.index)]; }
  Group& root(std::int32_t g) {
    while (at(g).parent != g) g = at(g).parent = at(at(g).parent).parent;
    return at(g);
  }
  Group& at(std::int32_t g) { return groups_[static_cast<std::size_t>(g)]; }
  bool is_on_host(std::int32_t g) { return g >= 0 && root(g).moved && !root(g).needed; }
  void need(ValueId id) {
    if (group_of(id) >= 0) root(group_of(id)).needed = true;
  }
  std::int32_t join(std::int32_t a, std::int32_t b) {
    Group &into = root(a), &from = root(b);
    into.moved = into.moved || from.moved;
    into.needed = into.needed || from.needed;
    return from.parent = into.parent;
  }

  void follow(const Call& call, std::int32_t& group) {
    bool others = false;
    std::int32_t of = -1;
    for_each_value(call, [&](ValueId id) {
      of = std::max(of, group_of(id));
      others = others || (group_of(id) < 0 && !number_[static_cast<std::size_t>(id.index)]);
    });
    for (const ValueId id : call.outputs)
      if (id.valid()) number_[static_cast<std::size_t>(id.index)] = makes_numbers(call);
    if (of < 0 || makes_numbers(call)) return;
    if (call.op == move_op && !keeps_copy(call)) {
      root(of).moved = true;
    } else if (others || call.op == move_op || !call.op.starts_with("aten::") ||
               call.known_shapes.size() != call.outputs.size()) {
      if (!reads_from_host(call)) for_each_value(call, [&](ValueId id) { need(id); });
    } else {
      for_each_value(call, [&](ValueId id) {
        if (group_of(id) >= 0) of = join(of, group_of(id));
      });
      group = of;
      for (const ValueId id : call.outputs)
        if (id.valid()) group_[static_cast<std::size_t>(id.index)] = of;
    }
  }

  std::vector<Group> groups_;
  std::vector<std::int32_t> group_;  ///< by value; -1: others
  std::vector<bool> number_;         ///< by value
  std::vector<std::int32_t> call_group_;
};

}  // namespace

void leave_constants_on_host(Tape& tape) {
  if (std::ranges::none_of(tape.calls, [](const Call& c) { return c.op == move_op; })) return;
  HostSide host(tape);
  std::map<ValueId, Arg> same;  // a move of what is there already
  std::set<ValueId> as_index;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    Call& call = tape.calls[i];
    replace_values(call, [&](ValueId id) {
      const auto it = same.find(id);
      return it == same.end() ? Arg{id} : it->second;
    });
    if (reads_from_host(call) && !host.call(i)) for_each_value(call, [&](ValueId id) { as_index.insert(id); });
    if (call.op != move_op) continue;
    const ValueId from = value_at(call, 0);
    if (host.value(from) && call.known_shapes.size() == 1)
      make_of_size(call, "aten::empty.memory_format", call.known_shapes[0].first, call.known_shapes[0].second);
    else
      same.emplace(call.outputs.at(0), Arg{from});
  }
  for (ValueId& id : tape.outputs)
    if (const auto it = same.find(id); it != same.end()) id = std::get<ValueId>(it->second.value);
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    Call& call = tape.calls[i];
    const bool read = host.call(i) && call.outputs.size() == 1 && as_index.contains(call.outputs[0]);
    if (read) make_of_size(call, "memplan::on_cpu", call.known_shapes[0].first, call.known_shapes[0].second);
  }
  remove_unused_calls(tape, [&](const Call& call, std::size_t i) {
    return call.op == move_op || (host.call(i) && !call.outputs.empty());
  });
  std::int64_t left = 0;
  for (std::size_t v = 0; v < tape.values.size(); ++v)
    if (tape.values[v].kind == ValueKind::constant && host.value(ValueId{static_cast<std::int32_t>(v)}))
      tape.values[v].on_host = true, ++left;
  if (left > 0)
    tape.recovered.push_back({"aten::to",
                              "tensors that a module holds without registering them, which the program moves", left,
                              Evidence::proven_by_file, About::placement});
}

}  // namespace memplan
