#include "estimators/restore/shown_inplace.h"

#include <string>
#include <string_view>

#include "estimators/facts/libraries.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

const Scope& scope_at(const Tape& tape, std::int32_t scope) { return tape.scopes[static_cast<std::size_t>(scope)]; }

bool is_inside(const Tape& tape, std::int32_t scope, std::int32_t of) {
  while (scope >= 0 && scope != of) scope = scope_at(tape, scope).parent;
  return scope == of;
}

/// Whether a call behind the Sequential around `call` reads what it made, though the Sequential does not end with it.
bool read_outside(const Tape& tape, std::size_t call, std::int32_t last_reader) {
  const std::int32_t scope = tape.calls[call].scope, around = scope < 0 ? -1 : scope_at(tape, scope).parent;
  if (around < 0 || scope_at(tape, around).module_class != "torch.nn.modules.container.Sequential") return false;
  std::size_t end = call + 1;
  while (end < tape.calls.size() && is_inside(tape, tape.calls[end].scope, around)) ++end;
  return end > call + 1 && last_reader >= static_cast<std::int32_t>(end);
}

std::string_view owner_class(const Tape& tape, std::size_t call) {
  const std::int32_t owner = owner_of(tape, tape.calls[call].scope);
  return owner < 0 ? std::string_view() : std::string_view(scope_at(tape, owner).module_class);
}

}  // namespace

std::int32_t owner_of(const Tape& tape, std::int32_t scope) {
  std::int32_t o = scope < 0 ? -1 : scope_at(tape, scope).parent;
  while (o >= 0 && fact_of_class("container", scope_at(tape, o).module_class)) o = scope_at(tape, o).parent;
  return o;
}

ShownInplace::ShownInplace(const Tape& tape, const std::vector<std::size_t>& candidates) {
  const std::vector<std::int32_t> last = last_readers(tape);
  std::set<std::string_view> writing, making;  // classes of owners
  for (const std::size_t i : candidates) {
    const Call& call = tape.calls[i];
    const ValueId before = value_at(call, 0), after = call.outputs[0];
    if (last[static_cast<std::size_t>(before.index)] > static_cast<std::int32_t>(i))
      makes_new_.insert(i), making.insert(owner_class(tape, i));
    else if (read_outside(tape, i, last[static_cast<std::size_t>(after.index)]))
      in_place_.insert(i), writing.insert(owner_class(tape, i));
  }
  if (writing.empty()) return;
  // One that makes a new tensor shows that the author does not always write in place: then only classes that do count.
  for (const std::size_t i : candidates)
    if (!makes_new(i) && (making.empty() || writing.count(owner_class(tape, i)))) in_place_.insert(i);
}

}  // namespace memplan
