// Tensors that a module holds as plain attributes: `model.cuda()` leaves them where they were made.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/restore/passes.h"
#include "estimators/restore/statement.h"
#include "estimators/tape/made_tensor.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// `x += self.table.to(device)`, and not `self.table = self.table.to(device)`, which keeps the copy.
bool moves(std::string_view source, std::string_view leaf) {
  const Statement s = parse_statement(source);
  if (s.value.find(".to(") == s.value.npos && s.value.find(".cuda(") == s.value.npos) return false;
  const bool kept = std::ranges::any_of(s.targets, [&](const auto& names) {
    return std::ranges::any_of(names, [&](std::string_view n) { return leaf_of(n) == leaf && n.size() > leaf.size(); });
  });
  return !kept && has_name(s.value, leaf);
}

/// Constants with sizes of which every line that reads them says that it moves them to the device.
std::set<ValueId> moved_constants(const Tape& tape) {
  std::set<ValueId> found, others;
  const auto is_table = [&](ValueId id) {
    const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    return v.kind == ValueKind::constant && !v.sizes.empty() && !v.on_host;
  };
  for (const Call& call : tape.calls)
    for_each_value(call, [&](ValueId id) {
      if (!is_table(id)) return;
      const bool moved = moves(call.source, leaf_of(tape.values[static_cast<std::size_t>(id.index)].name));
      (moved ? found : others).insert(id);
    });
  for (const ValueId id : tape.outputs) others.insert(id);
  for (const ValueId id : others) found.erase(id);
  return found;
}

}  // namespace

void copy_host_constants(Tape& tape) {
  const std::set<ValueId> moved = moved_constants(tape);
  if (moved.empty()) return;
  std::vector<Call> calls;
  std::map<std::pair<std::int32_t, ValueId>, std::pair<std::string, ValueId>> copies;  // by frame: of which line
  for (Call& call : tape.calls) {
    replace_values(call, [&](ValueId id) {
      if (!moved.contains(id)) return Arg{id};
      auto& [line, copy] = copies[{call.scope, id}];
      if (copy.valid() && line == call.source) return Arg{copy};
      const TapeValue table = tape.values[static_cast<std::size_t>(id.index)];
      Call made;
      make_of_size(made, "aten::empty.memory_format", table.dtype, table.sizes);
      made.scope = call.scope;
      made.source = line = call.source;
      TapeValue v;
      v.name = table.name + ".to";
      made.outputs = {copy = tape.add_value(std::move(v))};
      made.known_shapes = {{table.dtype, table.sizes}};
      calls.push_back(std::move(made));
      return Arg{copy};
    });
    calls.push_back(std::move(call));
  }
  tape.calls = std::move(calls);
  for (const ValueId id : moved) tape.values[static_cast<std::size_t>(id.index)].on_host = true;
  tape.recovered.push_back({"aten::to", "tensors that a module holds without registering them, which its lines move",
                            static_cast<std::int64_t>(moved.size()), Evidence::told_by_source_line, About::placement});
}

}  // namespace memplan
