#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "estimators/restore/passes.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// The exporter's pass names its calls by the overload; those of a program are named by the op alone.
bool is_inserted_cast(const Tape& tape, const Call& call) {
  return (call.op == "aten::to.dtype" || call.op == "memplan::to_default_dtype") && call.outputs.size() == 1 &&
         !call.args.empty() && std::holds_alternative<ValueId>(call.args[0].value) &&
         tape.values[static_cast<std::size_t>(call.outputs[0].index)].name.starts_with("convert_element_type_default");
}

/// Ops whose kernel reads operands of several types (TensorIterator).
bool promotes(std::string_view op) {
  for (std::string_view o : {"aten::mul.Tensor", "aten::add.Tensor", "aten::sub.Tensor", "aten::div.Tensor",
                             "aten::where.self", "aten::maximum", "aten::minimum"})
    if (op == o) return true;
  return false;
}

}  // namespace

void recover_type_promotion(Tape& tape) {
  std::unordered_map<std::int32_t, ValueId> instead;
  for (const Call& call : tape.calls)
    if (is_inserted_cast(tape, call)) instead[call.outputs[0].index] = std::get<ValueId>(call.args[0].value);
  if (instead.empty()) return;
  const auto keep = [&](ValueId id) { instead.erase(id.index); };
  for (const Call& call : tape.calls)
    if (!promotes(call.op)) for_each_value(call, keep);
  for (ValueId id : tape.outputs) keep(id);
  std::erase_if(tape.calls,
                [&](const Call& call) { return call.outputs.size() == 1 && instead.count(call.outputs[0].index); });
  for (Call& call : tape.calls)
    replace_values(call, [&](ValueId id) {
      const auto it = instead.find(id.index);
      return Arg{it == instead.end() ? id : it->second};
    });
  if (!instead.empty())
    tape.recovered.push_back({"promotion inside of the kernel", "casts that the exporter inserts",
                              static_cast<std::int64_t>(instead.size()), Evidence::told_by_name, About::op});
}

}  // namespace memplan
