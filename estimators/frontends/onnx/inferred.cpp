#include "estimators/frontends/onnx/inferred.h"

#include <fmt/format.h>

#include <algorithm>

#include "estimators/frontends/onnx/table.h"

namespace memplan::onnx_format {

InferredValues::InferredValues(const Graph& graph, const Symbols& symbols, std::int64_t opset)
    : graph_(graph), opset_(opset) {
  inferred_.resize(graph.values.size());
  for (GraphValueId id : graph.inputs) {
    const GraphValue& v = graph.values[static_cast<std::size_t>(id)];
    Inferred& f = at(id);
    f.dtype = v.dtype.value_or(DType::float32);
    Sizes sizes;
    bool known = v.shape.has_value();
    if (known)
      for (std::size_t axis = 0; axis < v.shape->size() && known; ++axis) {
        Dim d = (*v.shape)[axis];
        if (d.open()) d.symbol = dim_name(v, axis);
        const auto size = evaluate(d, symbols);
        known = size.has_value();
        if (known) sizes.push_back(*size);
      }
    if (known) count_of(sizes), f.sizes = std::move(sizes);
  }
  for (const auto& [id, tensor] : graph.initializers) {
    Inferred& f = at(id);
    f.dtype = tensor.dtype;
    f.sizes = tensor.sizes;
    const std::int64_t count = count_of(tensor.sizes);
    const std::size_t stored = std::max(tensor.integers.size(), tensor.floats.size());
    if (count <= max_followed && stored == static_cast<std::size_t>(count))
      f.contents = Contents{is_floating(tensor.dtype), tensor.integers, tensor.floats};
  }
  std::vector<Inferred> outputs;
  for (const GraphNode& node : graph.nodes) {
    outputs.assign(node.outputs.size(), {});
    const OpRow* row = find_op(node);
    if (row && row->infer) row->infer(At{node, *this, opset}, outputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const GraphValueId id = node.outputs[i];
      if (id < 0) continue;
      const GraphValue& v = graph.values[static_cast<std::size_t>(id)];
      Inferred& f = at(id);
      f = std::move(outputs[i]);
      if (!f.dtype) f.dtype = v.dtype;
      if (!f.sizes) f.sizes = evaluate(v, symbols);
      if (f.sizes) {
        const std::int64_t count = count_of(*f.sizes);
        if (f.contents && f.contents->size() != static_cast<std::size_t>(count)) f.contents.reset();
      }
    }
  }
}

std::int64_t count_of(const Sizes& sizes) {
  std::int64_t count = 1;
  for (std::int64_t s : sizes) {
    if (s < 0) fail_input(fmt::format("a dimension of {} is negative", s), {}, "check the dimensions given");
    count = checked_mul(count, s);
  }
  return count;
}

std::size_t axis_of(std::int64_t axis, std::size_t rank, const GraphNode& node) {
  const auto r = static_cast<std::int64_t>(rank);
  if (axis < -r || axis >= std::max<std::int64_t>(r, 1))
    fail_input(fmt::format("axis {} is outside the {} dimensions of the input of node '{}' ({})", axis, rank, node.name,
                           node.op_type),
               node.name, "the file is damaged, or its shapes contradict each other");
  return static_cast<std::size_t>(axis < 0 ? axis + r : axis);
}

Sizes broadcast(const Sizes& a, const Sizes& b, const GraphNode& node) {
  Sizes out(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      fail_input(fmt::format("sizes {} and {} do not go together in node '{}' ({})", x, y, node.name, node.op_type),
                 node.name, "the dimensions given do not fit this model, or the file is damaged");
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

const Attribute* At::attribute(const char* name) const {
  const auto it = node.attributes.find(name);
  return it == node.attributes.end() ? nullptr : &it->second;
}

std::int64_t At::integer(const char* name, std::int64_t fallback) const {
  const Attribute* a = attribute(name);
  const auto* v = a ? std::get_if<std::int64_t>(a) : nullptr;
  return v ? *v : fallback;
}

double At::real(const char* name, double fallback) const {
  const Attribute* a = attribute(name);
  const auto* v = a ? std::get_if<double>(a) : nullptr;
  return v ? *v : fallback;
}

std::string At::text(const char* name, std::string_view fallback) const {
  const Attribute* a = attribute(name);
  const auto* v = a ? std::get_if<std::string>(a) : nullptr;
  return v ? *v : std::string(fallback);
}

std::optional<Sizes> At::list(const char* name) const {
  const Attribute* a = attribute(name);
  const auto* v = a ? std::get_if<Sizes>(a) : nullptr;
  return v ? std::optional<Sizes>(*v) : std::nullopt;
}

std::optional<Sizes> At::list(const char* name, std::size_t input) const {
  return has(input) ? integers(input) : list(name);
}

std::optional<Sizes> At::integers(std::size_t input) const {
  const Inferred& f = in(input);
  if (!f.contents || f.contents->floating) return std::nullopt;
  return f.contents->integers;
}

std::optional<double> At::number(std::size_t input) const {
  const Inferred& f = in(input);
  return f.is_one_number() ? std::optional<double>(f.contents->number(0)) : std::nullopt;
}

}  // namespace memplan::onnx_format
