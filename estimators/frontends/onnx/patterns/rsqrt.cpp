// torch.rsqrt: 1 / Sqrt(x), or Reciprocal(Sqrt(x)).
#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

std::optional<Found> match_rsqrt(const View& v, std::int32_t last) {
  const bool quotient = v.node(last).op_type == "Div";
  if (quotient && !v.is_number(v.input(last, 0), 1)) return std::nullopt;
  const std::int32_t root = v.only_made_by(v.input(last, quotient ? 1 : 0), "Sqrt");
  if (root < 0) return std::nullopt;
  const GraphValueId x = v.input(root, 0);
  Found f;
  f.nodes = {last, root};
  f.reads = {x};
  f.op = "aten::rsqrt";
  f.from = quotient ? "Sqrt/Div" : "Sqrt/Reciprocal";
  f.emit = [x, last, &v](Emit& e) { e.call_for(v.at(last), "aten::rsqrt", {{e.tensor(x)}}); };
  return f;
}

}  // namespace memplan::onnx_format
