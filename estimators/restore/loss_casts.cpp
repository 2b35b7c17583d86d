#include <algorithm>
#include <string_view>

#include "estimators/facts/libraries.h"
#include "estimators/restore/casts.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

bool widens_logits(std::string_view source) {
  return std::ranges::any_of(library_facts("widens_logits"), [&](const LibraryFact& f) {
    const auto call = source.find(f.subject + "(");
    return call != source.npos && source.find(f.detail, call) != source.npos;
  });
}

/// The class of the module tells what its `self.loss_function` is (PreTrainedModel.loss_type).
bool widens_logits(const Tape& tape, const Call& call) {
  if (widens_logits(call.source)) return true;
  if (call.scope < 0) return false;
  const Scope& scope = tape.scopes[static_cast<std::size_t>(call.scope)];
  const LibraryFact* fact = fact_of_class("widens_logits", scope.module_class);
  return fact && call.source.find(fact->detail) != call.source.npos;
}

/// What the first call of a line reads, where it was made before the line.
ValueId first_operand(const Call& call) {
  const auto* id = call.args.empty() ? nullptr : std::get_if<ValueId>(&call.args[0].value);
  return id ? *id : ValueId{};
}

}  // namespace

void restore_loss_casts(Tape& tape) {
  if (tape.exported.keeps_casts) return;
  std::vector<bool> floating(tape.values.size(), false);
  std::int64_t count = 0;
  CallsBefore casts;
  std::vector<Call>& calls = tape.calls;
  for (std::size_t i = 0; i < calls.size();) {
    std::size_t end = i + 1;
    while (end < calls.size() && calls[end].scope == calls[i].scope && calls[end].source == calls[i].source) ++end;
    ValueId logits, wide;
    if (widens_logits(tape, calls[i]))
      for (std::size_t k = i; k < end && !logits.valid(); ++k)
        if (const ValueId x = first_operand(calls[k]); x.valid() && floating[static_cast<std::size_t>(x.index)])
          logits = x;
    if (logits.valid()) {
      Call cast = fp32_copy(tape, logits, calls[i]);
      wide = cast.outputs[0];
      cast.binding = calls[i].binding;
      casts.emplace_back(i, std::move(cast));
      ++count;
    }
    for (; i < end; ++i) {
      Call& call = calls[i];
      if (logits.valid()) replace_values(call, [&](ValueId id) { return Arg{id == logits ? wide : id}; });
      for (std::size_t k = 0; k < call.outputs.size(); ++k)
        if (call.outputs[k].valid() && k < call.known_shapes.size())
          floating[static_cast<std::size_t>(call.outputs[k].index)] = is_floating(call.known_shapes[k].first);
    }
  }
  insert_calls(tape.calls, std::move(casts));
  if (count > 0)
    tape.recovered.push_back({"aten::to.dtype", "logits that the library's loss converts, absent from an fp32 export",
                              count, Evidence::told_by_source_line, About::cast});
}

}  // namespace memplan
