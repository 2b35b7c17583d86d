// Tensor.unbind, and `q, k, v = x`: a Slice and a Squeeze for each part, of one text. Its backward pass stacks the
// gradients once, where slices would have one of the whole tensor each.
#include <algorithm>
#include <utility>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/frontends/onnx/metadata.h"
#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

namespace {

struct Part {
  std::int64_t index = 0, dim = 0;
  GraphValueId whole = -1, part = -1;
};

/// What a Squeeze of a Slice of one takes from where.
std::optional<Part> part_of(const View& v, std::int32_t squeeze) {
  const std::int32_t slice = v.made_by(v.input(squeeze, 0), "Slice");
  if (slice < 0) return std::nullopt;
  const auto axes = v.at(squeeze).list("axes", 1), starts = v.at(slice).list("starts", 1),
             along = v.at(slice).list("axes", 3);
  if (!axes || !starts || !along || axes->size() != 1 || *along != *axes || starts->size() != 1) return std::nullopt;
  return Part{starts->front(), axes->front(), v.input(slice, 0), v.output(squeeze)};
}

}  // namespace

std::optional<Found> match_unbind(const View& v, std::int32_t last) {
  const std::string_view text = note_at(v.node(last).metadata, fx_node_key);
  if (text.find("torch.ops.aten.unbind.int]") == text.npos) return std::nullopt;
  Found f;
  std::vector<Part> parts;
  for (std::int32_t n = last; n >= 0 && note_at(v.node(n).metadata, fx_node_key) == text; --n) {
    f.nodes.push_back(n);
    if (v.node(n).op_type == "Slice") continue;
    const auto part = v.node(n).op_type == "Squeeze" ? part_of(v, n) : std::nullopt;
    if (!part || part->index < 0 || (!parts.empty() && part->whole != parts[0].whole)) return std::nullopt;
    parts.push_back(*part);
  }
  const auto& sizes = v.sizes(parts[0].whole);
  const std::int64_t dim = parts[0].dim;
  if (!sizes || dim < 0 || dim >= static_cast<std::int64_t>(sizes->size())) return std::nullopt;
  const std::int64_t count = (*sizes)[static_cast<std::size_t>(dim)];
  constexpr std::int64_t most_parts = 65'536;
  if (count > most_parts || std::ranges::any_of(parts, [&](const Part& p) { return p.index >= count || p.dim != dim; }))
    return std::nullopt;
  f.reads = {parts[0].whole};
  for (const Part& p : parts)
    if (p.part != v.output(last)) f.makes.push_back(p.part);
  f.emit = [parts = std::move(parts), dim, count](Emit& e) {
    Call call;
    call.op = "aten::unbind.int";
    call.args = {{e.tensor(parts[0].whole)}, {dim}};
    call.scope = e.scope;
    call.outputs.resize(static_cast<std::size_t>(count));
    for (const Part& p : parts) {
      TapeValue value;
      value.name = e.name_of(p.part);
      const ValueId made = e.tape.add_value(std::move(value));
      call.outputs[static_cast<std::size_t>(p.index)] = made;
      e.bind(p.part, made);
    }
    e.tape.calls.push_back(std::move(call));
  };
  return f;
}

}  // namespace memplan::onnx_format
