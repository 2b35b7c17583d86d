// Tensors that a module holds as plain attributes, in files that say where the program moves them.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "estimators/restore/passes.h"
#include "estimators/restore/statement.h"
#include "estimators/tape/made_tensor.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

bool is_size(const Call& call) {
  return call.op.starts_with("aten::sym_") || call.op.starts_with("_operator.") || call.op.starts_with("torch.sym_");
}

/// Indices are taken from the CPU as they are.
bool takes_host_indices(const Call& call) { return call.op.starts_with("aten::index."); }

/// `self.table = self.table.to(device)` keeps the copy.
bool keeps_copy(const Call& call) {
  for (const auto& names : parse_statement(call.source).targets)
    for (const std::string_view n : names)
      if (n.find('.') != n.npos) return true;
  return false;
}

/// What is on the CPU if these constants are: calls that read nothing else, and sizes.
class HostSide {
 public:
  HostSide(const Tape& tape, const std::set<ValueId>& constants)
      : tape_(tape), of_(tape.values.size()), calls_(tape.calls.size(), false) {
    std::vector<bool> size(tape.values.size(), false);
    for (const ValueId id : constants) of_[static_cast<std::size_t>(id.index)] = {id};
    for (std::size_t i = 0; i < tape.calls.size(); ++i) {
      const Call& call = tape.calls[i];
      std::set<ValueId> of;
      bool others = false;
      for_each_value(call, [&](ValueId id) {
        const auto& theirs = of_[static_cast<std::size_t>(id.index)];
        of.insert(theirs.begin(), theirs.end());
        others = others || (theirs.empty() && !size[static_cast<std::size_t>(id.index)]);
      });
      calls_[i] = !of.empty() && !others && call.op != move_op && call.op.starts_with("aten::") &&
                  call.known_shapes.size() == call.outputs.size();
      for (const ValueId id : call.outputs) {
        if (!id.valid()) continue;
        size[static_cast<std::size_t>(id.index)] = is_size(call);
        if (calls_[i]) of_[static_cast<std::size_t>(id.index)] = of;
      }
    }
  }

  bool call(std::size_t i) const { return calls_[i]; }
  bool value(ValueId id) const { return id.valid() && !constants_of(id).empty(); }
  const std::set<ValueId>& constants_of(ValueId id) const { return of_[static_cast<std::size_t>(id.index)]; }

  /// Constants that something on the GPU reads, or that a line keeps there.
  std::set<ValueId> needed_on_device() const {
    std::set<ValueId> found;
    const auto add = [&](ValueId id) { found.insert(constants_of(id).begin(), constants_of(id).end()); };
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Call& call = tape_.calls[i];
      const bool fine =
          calls_[i] || is_size(call) || takes_host_indices(call) || (call.op == move_op && !keeps_copy(call));
      if (!fine) for_each_value(call, add);
    }
    for (const ValueId id : tape_.outputs)
      if (id.valid()) add(id);
    return found;
  }

 private:
  const Tape& tape_;
  std::vector<std::set<ValueId>> of_;  ///< by value: the constants that it is made of
  std::vector<bool> calls_;
};

/// Constants that moved values are made of, as far as the program would work with them on the CPU.
std::set<ValueId> constants_on_host(const Tape& tape) {
  std::set<ValueId> on_host;
  for (std::size_t v = 0; v < tape.values.size(); ++v)
    if (tape.values[v].kind == ValueKind::constant && !tape.values[v].sizes.empty() && !tape.values[v].on_host)
      on_host.insert(ValueId{static_cast<std::int32_t>(v)});
  const HostSide all(tape, on_host);
  std::set<ValueId> moved;
  for (const Call& call : tape.calls)
    if (call.op == move_op)
      for_each_value(call, [&](ValueId id) { moved.insert(all.constants_of(id).begin(), all.constants_of(id).end()); });
  for (on_host = std::move(moved);;) {
    const std::set<ValueId> needed = HostSide(tape, on_host).needed_on_device();
    if (needed.empty()) return on_host;
    for (const ValueId id : needed) on_host.erase(id);
  }
}

}  // namespace

void leave_constants_on_host(Tape& tape) {
  if (std::ranges::none_of(tape.calls, [](const Call& c) { return c.op == move_op; })) return;
  const std::set<ValueId> constants = constants_on_host(tape);
  const HostSide host(tape, constants);
  std::map<ValueId, Arg> same;  // a move of what is there already
  std::set<ValueId> as_index;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    Call& call = tape.calls[i];
    replace_values(call, [&](ValueId id) {
      const auto it = same.find(id);
      return it == same.end() ? Arg{id} : it->second;
    });
    if (takes_host_indices(call) && !host.call(i)) for_each_value(call, [&](ValueId id) { as_index.insert(id); });
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
  for (const ValueId id : constants) tape.values[static_cast<std::size_t>(id.index)].on_host = true;
  if (!constants.empty())
    tape.recovered.push_back({"aten::to",
                              "tensors that a module holds without registering them, which the program moves",
                              static_cast<std::int64_t>(constants.size()), Evidence::proven_by_file, About::placement});
}

}  // namespace memplan
