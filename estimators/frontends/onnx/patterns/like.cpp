// torch.zeros_like, ones_like and full_like: ConstantOfShape(Shape(x)). They take the dtype that x has when the model
// runs, which is not that of the file where the model runs in another precision.
#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

std::optional<Found> match_like(const View& v, std::int32_t last) {
  const std::int32_t shape = v.made_by(v.input(last, 0), "Shape");
  if (shape < 0 || !v.node(shape).attributes.empty()) return std::nullopt;
  const GraphValueId x = v.input(shape, 0);
  if (v.stored(x) || v.inferred[x].dtype != v.inferred[v.output(last)].dtype) return std::nullopt;
  const Attribute* a = v.at(last).attribute("value");
  const auto* t = a ? std::get_if<StoredTensor>(a) : nullptr;
  const double value = !t                     ? 0
                       : !t->floats.empty()   ? t->floats[0]
                       : !t->integers.empty() ? static_cast<double>(t->integers[0])
                                              : 0;
  Found f;
  f.nodes = {last};
  f.reads = {x};
  f.emit = [x, value, last, &v](Emit& e) {
    if (value == 0)
      e.call_for(v.at(last), "aten::zeros_like", {{e.tensor(x)}});
    else if (value == 1)
      e.call_for(v.at(last), "aten::ones_like", {{e.tensor(x)}});
    else
      e.call_for(v.at(last), "aten::full_like", {{e.tensor(x)}, {value}});
  };
  return f;
}

}  // namespace memplan::onnx_format
