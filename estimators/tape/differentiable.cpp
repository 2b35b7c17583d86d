#include "estimators/tape/differentiable.h"

#include <algorithm>

#include "estimators/tape/uses.h"

namespace memplan {

void Differentiable::follow(const Call& call) {
  bool any = false;
  if (call.op != "aten::detach" && call.op != "aten::detach_copy")
    for_each_value(call, [&](ValueId id) { any = any || wants(id); });
  if (!any) return;
  made_.resize(tape_.values.size(), false);
  for (const ValueId out : call.outputs)
    if (out.valid()) made_[static_cast<std::size_t>(out.index)] = true;
}

bool Differentiable::any_result_of(const std::vector<Arg>& args) const {
  return std::any_of(args.begin(), args.end(), [&](const Arg& a) {
    const auto* id = std::get_if<ValueId>(&a.value);
    return id && is_made(*id);
  });
}

bool Differentiable::is_made(ValueId id) const {
  const auto at = static_cast<std::size_t>(id.index);
  return id.valid() && at < made_.size() && made_[at];
}

bool Differentiable::wants(ValueId id) const {
  if (!id.valid()) return false;
  const TapeValue& v = tape_.values[static_cast<std::size_t>(id.index)];
  return (v.kind == ValueKind::parameter && v.requires_grad) || is_made(id);
}

}  // namespace memplan
