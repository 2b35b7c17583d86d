// The packed projection of nn.MultiheadAttention (torch/nn/functional.py, _in_projection_packed): the product is
// viewed as three, moved and made contiguous, a copy that no ONNX node shows.
#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

std::optional<Found> match_in_projection(const View& v, std::int32_t last) {
  const std::int32_t transpose = v.only_made_by(v.input(last, 0), "Transpose");
  const std::int32_t unsqueeze = transpose < 0 ? -1 : v.only_made_by(v.input(transpose, 0), "Unsqueeze");
  const std::int32_t reshape = unsqueeze < 0 ? -1 : v.only_made_by(v.input(unsqueeze, 0), "Reshape");
  if (reshape < 0) return std::nullopt;
  const auto& sizes = v.sizes(v.output(last));
  const auto& split = v.sizes(v.output(reshape));
  const auto axes = v.at(last).list("axes", 1);
  if (!sizes || !split || !axes || axes->size() != 1 || sizes->empty() || sizes->front() != 3 || split->size() < 3 ||
      (*split)[split->size() - 2] != 3)
    return std::nullopt;
  const auto perm = v.at(transpose).list("perm");
  if (!perm || perm->size() != split->size() + 1 || perm->front() != static_cast<std::int64_t>(split->size()) - 1)
    return std::nullopt;
  Found f;
  f.nodes = {last};
  const GraphValueId moved = v.input(last, 0);
  f.reads = {moved};
  f.op = "aten::contiguous";
  f.from = "the packed projection of nn.MultiheadAttention";
  f.emit = [moved, last, axis = axes->front(), &v](Emit& e) {
    const Arg view{e.call("aten::squeeze.dim", {{e.tensor(moved)}, {axis}})};
    e.call_for(v.at(last), "aten::contiguous", {view});
  };
  return f;
}

}  // namespace memplan::onnx_format
