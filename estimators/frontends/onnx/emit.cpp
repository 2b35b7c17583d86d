#include "estimators/frontends/onnx/emit.h"

#include <algorithm>

#include "estimators/frontends/onnx/metadata.h"
#include "estimators/frontends/onnx/single_node.h"
#include "estimators/frontends/onnx/table.h"
#include "estimators/setup/setup.h"

namespace memplan::onnx_format {

namespace {

/// Names that a tool gave to a constant, as opposed to the path of a parameter: "onnx::Mul_12", "/layer/Constant_1".
bool is_parameter_name(std::string_view name) {
  if (name.find("::") != std::string_view::npos || name.find('/') != std::string_view::npos ||
      name.find(':') != std::string_view::npos)
    return false;
  const std::size_t dot = name.rfind('.');
  const std::string_view leaf = dot == std::string_view::npos ? name : name.substr(dot + 1);
  for (std::string_view end : {"weight", "bias", "scale", "gamma", "beta", "alpha", "temperature"})
    if (leaf.size() >= end.size() && leaf.substr(leaf.size() - end.size()) == end) return true;
  return false;
}

}  // namespace

bool Emit::norm_trains(const GraphNode& node) const {
  const auto says = [](const GraphNode& n, std::string_view form) {
    return note_at(n.metadata, fx_node_key).find(form) != std::string_view::npos;
  };
  if (!training() || !says(node, "batch_norm_legit_no_training")) return training();
  if (!some_norms_train_)
    some_norms_train_ = std::ranges::any_of(inferred.graph().nodes,
                                            [&](const GraphNode& n) { return says(n, "batch_norm_legit_functional"); });
  return !*some_norms_train_;
}

Arg list_of(const Sizes& numbers) {
  Arg::List list;
  list.reserve(numbers.size());
  for (std::int64_t n : numbers) list.push_back({n});
  return {std::move(list)};
}

bool is_python_number(const InferredValues& inferred, GraphValueId id) {
  if (id < 0) return false;
  const Inferred& f = inferred[id];
  // A tensor of one element and several dimensions may give its rank to the result.
  if (!f.is_one_number() || f.rank() > 1) return false;
  const auto it = inferred.graph().initializers.find(id);
  return it == inferred.graph().initializers.end() || !is_floating(it->second.dtype) ||
         !is_parameter_name(it->second.name);
}

bool Emit::training() const { return setup.mode == Mode::training; }

std::string Emit::name_of(GraphValueId id) const {
  return id < 0 ? std::string() : inferred.graph().values[static_cast<std::size_t>(id)].name;
}

ValueId Emit::tensor(GraphValueId id) {
  const ValueId known = values.of(id, true);
  if (known.valid() || id < 0) return known;
  // Arithmetic that was folded, or a Constant node: torch.tensor(...) in a forward pass.
  const Inferred& f = inferred[id];
  TapeValue v;
  v.name = name_of(id);
  v.kind = ValueKind::constant;
  v.dtype = f.dtype.value_or(DType::float32);
  v.sizes = f.sizes.value_or(Sizes{});
  v.on_host = v.sizes.empty();
  if (f.is_one_number() && !f.contents->floating && v.sizes.size() <= 1) v.number = f.contents->integers[0];
  const ValueId made = tape.add_value(std::move(v));
  tape.buffers.push_back(made);
  bind(id, made);
  return made;
}

Arg Emit::optional(const At& at, std::size_t input) {
  if (!at.has(input)) return {};
  return {tensor(at.id(input))};
}

bool Emit::is_number(GraphValueId id) const {
  // One of the weights of `w[0] * x + w[1] * y`, which an optimizer worked out and may have merged with another, is
  // none.
  return is_python_number(inferred, id) && values.folded_parameter(id).empty();
}

Arg Emit::operand(GraphValueId id) {
  if (!is_number(id)) return {tensor(id)};
  const Contents& c = *inferred[id].contents;
  if (c.floating) return {c.floats[0]};
  if (inferred[id].dtype == DType::boolean) return {c.integers[0] != 0};
  return {c.integers[0]};
}

ValueId Emit::call(std::string op, std::vector<Arg> args, Kwargs kwargs, std::string name) {
  TapeValue v;
  v.name = name.empty() ? op.substr(op.find("::") == std::string::npos ? 0 : op.find("::") + 2) : std::move(name);
  const ValueId out = tape.add_value(std::move(v));
  Call c;
  c.op = std::move(op);
  c.args = std::move(args);
  c.kwargs = std::move(kwargs);
  c.outputs = {out};
  c.scope = scope;
  tape.calls.push_back(std::move(c));
  return out;
}

void Emit::call_for(const At& at, std::string op, std::vector<Arg> args, Kwargs kwargs, std::size_t outputs) {
  Call c;
  c.op = std::move(op);
  c.args = std::move(args);
  c.kwargs = std::move(kwargs);
  c.scope = scope;
  // `value, _ = x.max(dim)`: a name may hold what nobody reads.
  const bool indices =
      (c.op == "aten::max.dim" || c.op == "aten::min.dim") && !at.node.outputs.empty() && at.node.outputs[0] >= 0;
  for (std::size_t i = 0; i < (indices ? 2 : outputs); ++i) {
    const GraphValueId id = i < at.node.outputs.size() ? at.node.outputs[i] : -1;
    if (id < 0 && !indices) {
      c.outputs.push_back({});
      continue;
    }
    TapeValue v;
    v.name = id < 0 ? name_of(at.node.outputs[0]) + "_indices" : name_of(id);
    c.outputs.push_back(tape.add_value(std::move(v)));
    if (id < 0) continue;
    bind(id, c.outputs.back());
    if (const Inferred& f = inferred[id]; outputs == 1 && !indices && f.dtype && f.sizes)
      c.known_shapes.emplace_back(*f.dtype, *f.sizes);
  }
  tape.calls.push_back(std::move(c));
}

void Emit::lower_node(const GraphNode& node) {
  const OpRow* row = find_op(node);
  const std::size_t before = tape.calls.size();
  if (row && row->lower && !node.outputs.empty() && row->lower(At{node, inferred, inferred.opset()}, *this)) return;
  tape.calls.resize(before);
  Call unknown = unknown_call(node, values, tape, &inferred);
  unknown.scope = scope;
  tape.calls.push_back(std::move(unknown));
}

}  // namespace memplan::onnx_format
