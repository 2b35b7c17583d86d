// A batch norm that takes its statistics of the batch in every mode, as timm's StdConv2d standardizes a weight. The
// exporter works the statistics out by nodes of their own and keeps the call's text on each of them.
#include "estimators/frontends/onnx/fx_text.h"
#include "estimators/frontends/onnx/metadata.h"
#include "estimators/frontends/onnx/patterns.h"
#include "estimators/frontends/onnx/values.h"

namespace memplan::onnx_format {

namespace {

/// What scales the norm. Gains of several modules that are equal became one tensor, `(gain * scale).view(-1)` of the
/// first: each module has its own and makes this of it.
Arg scale_of(GraphValueId weight, bool of_this_call, Emit& e) {
  const std::string_view folded = of_this_call ? std::string_view() : e.values.folded_parameter(weight);
  if (folded.empty()) return {e.tensor(weight)};
  const std::string_view module =
      e.scope < 0 ? std::string_view() : std::string_view(e.tape.scopes[static_cast<std::size_t>(e.scope)].path);
  const Arg scaled{e.call("aten::mul.Tensor", {{e.values.of_module(e.values.of_name(folded), module)}, {1.0}})};
  return {e.call("aten::view", {scaled, list_of({-1})})};
}

}  // namespace

std::optional<Found> match_own_statistics(const View& v, std::int32_t last) {
  const auto text = [&](std::int32_t n) { return note_at(v.node(n).metadata, "pkg.torch.onnx.fx_node"); };
  const std::string_view call = text(last);
  if (call.find("_native_batch_norm_legit.no_stats]") == call.npos) return std::nullopt;
  // (input, weight, bias, training, momentum, eps): an argument that is None is made of ones or zeros.
  FxText parsed;
  std::vector<std::string_view> names;
  const Intern intern = [&](std::string_view name) {
    names.push_back(name);
    return ValueId{static_cast<std::int32_t>(names.size()) - 1};
  };
  if (!parse_fx(call, intern, parsed)) return std::nullopt;
  const auto name = [&](std::size_t i) {
    const auto* id = i < parsed.args.size() ? std::get_if<ValueId>(&parsed.args[i].value) : nullptr;
    return id ? names[static_cast<std::size_t>(id->index)] : std::string_view();
  };
  const GraphValueId x = v.input(last, 0), weight = v.input(last, 1), bias = v.input(last, 2);
  if (x < 0 || weight < 0 || bias < 0) return std::nullopt;
  const bool weighted = !name(1).empty(), shifted = !name(2).empty();
  const bool own = v.graph.values[static_cast<std::size_t>(weight)].name == name(1);
  Found f;
  for (std::int32_t n = last; n >= 0 && text(n) == call; --n) f.nodes.insert(f.nodes.begin(), n);
  f.reads = {x};
  if (weighted) f.reads.push_back(weight);
  if (shifted) f.reads.push_back(bias);
  f.op = "aten::batch_norm";
  f.from = "the nodes that work out its statistics";
  f.emit = [last, x, weight, bias, weighted, shifted, own, &v](Emit& e) {
    const Arg scale = weighted ? scale_of(weight, own, e) : Arg{};
    const Arg shift = shifted ? Arg{e.tensor(bias)} : Arg{};
    const Arg eps{v.at(last).real("epsilon", 1e-5)};
    e.call_for(v.at(last), "aten::batch_norm", {{e.tensor(x)}, scale, shift, {}, {}, {true}, {0.0}, eps, {true}});
  };
  return f;
}

}  // namespace memplan::onnx_format
