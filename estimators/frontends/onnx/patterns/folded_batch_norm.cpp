// nn.BatchNorm2d that an export in evaluation mode folded into the convolution before it. The exporter renames the
// weights that it computed ("onnx::Conv_193"), which tells such a convolution from one with a bias of its own.
#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

std::optional<Found> match_folded_batch_norm(const View& v, std::int32_t last) {
  // Equal tensors that the export computed are one tensor in the file, read by way of Identity.
  auto origin = [&](GraphValueId id) {
    const std::int32_t same = v.made_by(id, "Identity");
    return same < 0 ? id : v.input(same, 0);
  };
  const GraphValueId x = v.input(last, 0), weight = v.input(last, 1), bias = origin(v.input(last, 2));
  if (!v.stored(weight) || !v.stored(bias) || !v.sizes(weight) || v.sizes(weight)->size() < 3) return std::nullopt;
  auto computed = [&](GraphValueId id) {
    return v.graph.values[static_cast<std::size_t>(id)].name.rfind("onnx::Conv_", 0) == 0;
  };
  if (!computed(weight) || !computed(v.input(last, 2))) return std::nullopt;
  Found f;
  f.nodes = {last};
  f.reads = {x, weight};
  f.op = "aten::batch_norm";
  f.from = "a convolution that an export in evaluation mode folded it into";
  f.emit = [last, weight, &v](Emit& e) {
    // Lowered by the op's row without its bias, which becomes the norm's.
    GraphNode bare = v.node(last);
    bare.inputs.resize(2);
    e.lower_node(bare);
    const ValueId y = e.tensor(v.output(last));
    const std::int64_t channels = (*v.sizes(weight))[0];
    const std::string module = e.tape.values[static_cast<std::size_t>(e.tensor(weight).index)].name;
    const std::string path = module.substr(0, module.rfind('.'));
    auto make = [&](const char* leaf, ValueKind kind) {
      return Arg{e.values.make(kind, path + ".norm." + leaf, DType::float32, {channels})};
    };
    const Arg scale = make("weight", ValueKind::parameter), shift = make("bias", ValueKind::parameter);
    const Arg mean = make("running_mean", ValueKind::buffer), variance = make("running_var", ValueKind::buffer);
    e.values.make(ValueKind::buffer, path + ".norm.num_batches_tracked", DType::int64, {});
    e.call_for(v.at(last), "aten::batch_norm",
               {{y}, scale, shift, mean, variance, {e.training()}, {0.1}, {1e-5}, {true}});
  };
  return f;
}

}  // namespace memplan::onnx_format
