#include "estimators/restore/passes.h"

#include <algorithm>

#include "estimators/tape/uses.h"

namespace memplan {

void remove_unused_calls(Tape& tape, const std::function<bool(const Call&, std::size_t)>& may_go) {
  std::vector<int> uses = count_reads(tape);
  std::vector<bool> dead(tape.calls.size(), false);
  for (std::size_t i = tape.calls.size(); i-- > 0;) {
    const Call& call = tape.calls[i];
    const bool used = std::any_of(call.outputs.begin(), call.outputs.end(), [&](ValueId id) {
      return id.valid() && uses[static_cast<std::size_t>(id.index)] > 0;
    });
    if (used || !may_go(call, i)) continue;
    dead[i] = true;
    for_each_value(call, [&](ValueId id) {
      if (id.valid()) --uses[static_cast<std::size_t>(id.index)];
    });
  }
  std::size_t at = 0;
  std::erase_if(tape.calls, [&](const Call&) { return dead[at++]; });
}

void remove_dead_calls(Tape& tape) {
  auto counts_bytes = [](const Call& call) {
    if (call.op.starts_with("aten::sym_") || call.op.starts_with("_operator.")) return false;
    if (call.known_shapes.empty()) return true;
    return std::any_of(call.known_shapes.begin(), call.known_shapes.end(),
                       [](const auto& s) { return is_floating(s.first); });
  };
  remove_unused_calls(tape, [&](const Call& call, std::size_t) {
    const std::string_view base = std::string_view(call.op).substr(0, call.op.find('.'));
    return !call.outputs.empty() && base.back() != '_' && !counts_bytes(call);
  });
}

}  // namespace memplan
