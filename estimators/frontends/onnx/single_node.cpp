#include "estimators/frontends/onnx/single_node.h"

#include <algorithm>

#include "estimators/frontends/onnx/emit.h"

namespace memplan::onnx_format {

Call unknown_call(const GraphNode& node, Values& values, Tape& tape, const InferredValues* inferred) {
  Call call;
  call.op = (node.domain.empty() ? "onnx" : node.domain) + "::" + node.op_type;
  call.unknown = true;
  for (GraphValueId id : node.inputs) {
    const ValueId v = values.of(id, true);
    call.args.push_back(v.valid() ? Arg{v} : Arg{});
  }
  bool all_known = true;
  for (GraphValueId id : node.outputs) {
    if (id < 0) {
      call.outputs.push_back({});
      continue;
    }
    const GraphValue& v = values.graph().values[static_cast<std::size_t>(id)];
    TapeValue t;
    t.name = v.name;
    const ValueId out = tape.add_value(std::move(t));
    values.set(id, out);
    call.outputs.push_back(out);
    const auto sizes = inferred ? (*inferred)[id].sizes : evaluate(v, values.symbols());
    const auto dtype = inferred ? (*inferred)[id].dtype : v.dtype;
    all_known = all_known && sizes;
    if (sizes) call.known_shapes.emplace_back(dtype.value_or(DType::float32), *sizes);
  }
  if (!all_known) call.known_shapes.clear();
  return call;
}

void lower_single_node(const GraphNode& node, const TrainingSetup& setup, Values& values, Tape& tape) {
  const InferredValues& inferred = values.inferred();
  // Arithmetic on sizes is done already.
  const bool folded = std::all_of(node.outputs.begin(), node.outputs.end(), [&](GraphValueId id) {
    return id < 0 || (inferred[id].contents && (!inferred[id].contents->floating || inferred[id].is_one_number()));
  });
  if (folded && !node.outputs.empty()) return;
  Emit emit(inferred, setup, values, tape);
  emit.lower_node(node);
}

}  // namespace memplan::onnx_format
