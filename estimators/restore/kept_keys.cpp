#include "estimators/restore/kept_keys.h"

#include <optional>
#include <string_view>

#include "estimators/facts/libraries.h"
#include "estimators/restore/statement.h"

namespace memplan {

namespace {

/// "k, v = past_key_values.update(k, v, self.layer_idx)": two names, from what an object of this frame answers.
bool updates_cache(const Tape& tape, const Call& call) {
  if (call.op != "aten::cat" || call.binding < 0) return false;
  const auto& targets = tape.bindings[static_cast<std::size_t>(call.binding)].targets;
  if (targets.size() != 1 || targets[0].size() != 2) return false;
  const Statement s = parse_statement(call.source);
  const std::string_view value = s.value;
  const auto open = value.find('(');
  return open != value.npos && value.substr(0, open).ends_with(".update");
}

/// An exporter's optimizer folds `cat([empty, k])`, and with it the line that told of the cache.
bool joins_nothing(const Call& call) {
  const auto* parts =
      call.op == "aten::cat" && !call.args.empty() ? std::get_if<std::vector<Arg>>(&call.args[0].value) : nullptr;
  return parts && parts->size() == 1 && fact_of_file("keeps_keys", call.source);
}

/// `aten::empty([0])`.
bool makes_nothing(const Call& call) {
  if (call.op != "aten::empty.memory_format" || call.args.empty()) return false;
  const auto* sizes = std::get_if<std::vector<Arg>>(&call.args[0].value);
  const auto* size = sizes && sizes->size() == 1 ? std::get_if<std::int64_t>(&(*sizes)[0].value) : nullptr;
  return size && *size == 0;
}

}  // namespace

void begin_caches_like_keys(Tape& tape) {
  std::vector<std::int32_t> maker(tape.values.size(), -1);
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    Call& call = tape.calls[i];
    for (ValueId id : call.outputs)
      if (id.valid()) maker[static_cast<std::size_t>(id.index)] = static_cast<std::int32_t>(i);
    if (!updates_cache(tape, call) || call.args.empty()) continue;
    const auto* parts = std::get_if<std::vector<Arg>>(&call.args[0].value);
    if (!parts || parts->size() != 2) continue;
    const auto *before = std::get_if<ValueId>(&(*parts)[0].value), *keys = std::get_if<ValueId>(&(*parts)[1].value);
    if (!before || !keys) continue;
    const std::int32_t made = maker[static_cast<std::size_t>(before->index)],
                       first = maker[static_cast<std::size_t>(keys->index)];
    if (made < 0 || first >= made) continue;
    Call& empty = tape.calls[static_cast<std::size_t>(made)];
    if (!makes_nothing(empty)) continue;
    empty.op = "aten::new_empty";
    empty.args = {Arg{*keys}, empty.args[0]};
    empty.kwargs.clear();
  }
}

std::vector<std::int32_t> held_by_cache(const Tape& tape, const Frames& frames) {
  std::vector<std::int32_t> until(tape.values.size(), -1), held;
  std::optional<std::int32_t> owner;
  for (const Call& call : tape.calls) {
    if (call.scope < 0 || !(updates_cache(tape, call) || joins_nothing(call))) continue;
    const std::int32_t caller = frames.parent(call.scope);
    owner = owner ? frames.common(*owner, caller) : caller;
    for (ValueId id : call.outputs)
      if (id.valid()) held.push_back(id.index);
  }
  for (const std::int32_t id : held) until[static_cast<std::size_t>(id)] = frames.end(*owner);
  return until;
}

}  // namespace memplan
