// Ops that reduce along axes, and running ones.
#include <algorithm>
#include <numeric>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/frontends/onnx/ops/contents.h"
#include "estimators/frontends/onnx/table.h"

namespace memplan::onnx_format {

namespace {

/// The reduced axes, ascending; all of them when none is given. None where they are not known.
std::optional<Sizes> axes_of(const At& at) {
  if (!at.sizes(0)) return std::nullopt;
  const std::size_t rank = at.sizes(0)->size();
  auto axes = at.list("axes", 1);
  if (!axes && at.has(1)) return std::nullopt;
  if (!axes || axes->empty()) {
    if (at.integer("noop_with_empty_axes", 0)) return Sizes{};
    axes.emplace(rank);
    std::iota(axes->begin(), axes->end(), 0);
  }
  for (std::int64_t& a : *axes) a = static_cast<std::int64_t>(axis_of(a, rank, at.node));
  std::sort(axes->begin(), axes->end());
  return axes;
}

Sizes reduced(const Sizes& sizes, const Sizes& axes, bool keep) {
  Sizes out;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!std::binary_search(axes.begin(), axes.end(), static_cast<std::int64_t>(i)))
      out.push_back(sizes[i]);
    else if (keep)
      out.push_back(1);
  }
  return out;
}

void infer_reduce(const At& at, std::vector<Inferred>& out) {
  const Inferred& x = at.in(0);
  out[0].dtype = x.dtype;
  const auto axes = axes_of(at);
  if (!axes) return;
  out[0].sizes = reduced(*x.sizes, *axes, at.integer("keepdims", 1) != 0);
  if (!x.contents || x.contents->floating || count_of(*out[0].sizes) != 1 || x.contents->size() == 0) return;
  const auto& v = x.contents->integers;
  Contents c;
  const std::string& op = at.node.op_type;
  if (op == "ReduceMax")
    c.integers = {*std::max_element(v.begin(), v.end())};
  else if (op == "ReduceMin")
    c.integers = {*std::min_element(v.begin(), v.end())};
  else if (op == "ReduceSum" || op == "ReduceProd") {
    std::int64_t r = op == "ReduceSum" ? 0 : 1;
    for (std::int64_t k : v) r = op == "ReduceSum" ? checked_add(r, k) : checked_mul(r, k);
    c.integers = {r};
  } else
    return;
  out[0].contents = std::move(c);
}

/// x.max(dim), whose indices nobody reads: eager code makes them all the same, and autograd keeps them.
bool with_indices(const GraphNode& node, std::string_view op) {
  const auto text = node.metadata.find(fx_node_key);
  return text != node.metadata.end() &&
         text->second.find("target=torch.ops.aten." + std::string(op) + ".dim]") != std::string::npos;
}

bool lower_reduce(const At& at, Emit& e) {
  const auto axes = axes_of(at);
  if (!axes) return false;
  const std::string& op = at.node.op_type;
  Arg x{e.tensor(at.id(0))};
  if (axes->empty()) {
    e.bind(at.node.outputs[0], std::get<ValueId>(x.value));
    return true;
  }
  const bool keep = at.integer("keepdims", 1) != 0;
  const bool all = axes->size() == at.sizes(0)->size() && !keep;
  // Trailing axes as Python code writes them: x.mean(-1).
  Sizes dims = *axes;
  const auto rank = static_cast<std::int64_t>(at.sizes(0)->size());
  if (dims.size() == 1 && dims[0] == rank - 1) dims[0] = -1;
  const Arg axis = list_of(dims), keepdim{keep};
  if (op == "ReduceMean")
    all ? e.call_for(at, "aten::mean", {x}) : e.call_for(at, "aten::mean.dim", {x, axis, keepdim});
  else if (op == "ReduceSum")
    all ? e.call_for(at, "aten::sum", {x}) : e.call_for(at, "aten::sum.dim_IntList", {x, axis, keepdim});
  else if (op == "ReduceMax" && with_indices(at.node, "max"))
    e.call_for(at, "aten::max.dim", {x, {dims[0]}, keepdim}, {}, 2);
  else if (op == "ReduceMin" && with_indices(at.node, "min"))
    e.call_for(at, "aten::min.dim", {x, {dims[0]}, keepdim}, {}, 2);
  else if (op == "ReduceMax")
    all ? e.call_for(at, "aten::max", {x}) : e.call_for(at, "aten::amax", {x, axis, keepdim});
  else if (op == "ReduceMin")
    all ? e.call_for(at, "aten::min", {x}) : e.call_for(at, "aten::amin", {x, axis, keepdim});
  else if (op == "ReduceProd") {
    if (all)
      e.call_for(at, "aten::prod", {x});
    else if (dims.size() == 1)
      e.call_for(at, "aten::prod.dim_int", {x, {dims[0]}, keepdim});
    else
      return false;
  } else if (op == "ReduceL2")
    e.call_for(at, "aten::linalg_vector_norm", {x, {std::int64_t{2}}, axis, keepdim});
  else if (op == "ReduceL1")
    e.call_for(at, "aten::linalg_vector_norm", {x, {std::int64_t{1}}, axis, keepdim});
  else if (op == "ReduceLogSumExp")
    e.call_for(at, "aten::logsumexp", {x, axis, keepdim});
  else if (op == "ReduceSumSquare")
    e.call_for(at, "aten::sum.dim_IntList",
               {{e.call("aten::pow.Tensor_Scalar", {x, {std::int64_t{2}}})}, axis, keepdim});
  else if (op == "ReduceLogSum")
    e.call_for(at, "aten::log", {{e.call("aten::sum.dim_IntList", {x, axis, keepdim})}});
  else
    return false;
  return true;
}

void infer_arg(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = DType::int64;
  if (!at.sizes(0)) return;
  const auto axis = static_cast<std::int64_t>(axis_of(at.integer("axis", 0), at.sizes(0)->size(), at.node));
  out[0].sizes = reduced(*at.sizes(0), {axis}, at.integer("keepdims", 1) != 0);
}

bool lower_arg(const At& at, Emit& e) {
  e.call_for(at, at.node.op_type == "ArgMax" ? "aten::argmax" : "aten::argmin",
             {{e.tensor(at.id(0))}, {at.integer("axis", 0)}, {at.integer("keepdims", 1) != 0}});
  return true;
}

void infer_topk(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = at.in(0).dtype;
  if (out.size() > 1) out[1].dtype = DType::int64;
  const auto k = at.has(1)           ? at.number(1)
                 : at.attribute("k") ? std::optional<double>(static_cast<double>(at.integer("k", 1)))
                                     : std::nullopt;
  if (!k || !at.sizes(0)) return;
  Sizes sizes = *at.sizes(0);
  sizes[axis_of(at.integer("axis", -1), sizes.size(), at.node)] = whole_number(*k, "a TopK");
  for (Inferred& f : out) f.sizes = sizes;
}

bool lower_topk(const At& at, Emit& e) {
  const Inferred& out = e.inferred[at.node.outputs[0]];
  if (!out.sizes) return false;
  const std::int64_t axis = at.integer("axis", -1), k = (*out.sizes)[axis_of(axis, out.rank(), at.node)];
  // torch.sort is exported as a TopK of all elements.
  if (k == (*at.sizes(0))[axis_of(axis, out.rank(), at.node)])
    e.call_for(at, "aten::sort", {{e.tensor(at.id(0))}, {axis}, {at.integer("largest", 1) != 0}}, {}, 2);
  else
    e.call_for(at, "aten::topk",
               {{e.tensor(at.id(0))}, {k}, {axis}, {at.integer("largest", 1) != 0}, {at.integer("sorted", 1) != 0}}, {},
               2);
  return true;
}

void infer_same(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = at.in(0).dtype;
  out[0].sizes = at.sizes(0);
}

void infer_cumsum(const At& at, std::vector<Inferred>& out) {
  infer_same(at, out);
  if (!at.in(0).contents || at.in(0).contents->floating || at.in(0).rank() != 1) return;
  Contents c = *at.in(0).contents;
  for (std::size_t i = 1; i < c.integers.size(); ++i) c.integers[i] = checked_add(c.integers[i], c.integers[i - 1]);
  out[0].contents = std::move(c);
}

bool lower_cumsum(const At& at, Emit& e) {
  const auto axis = at.number(1);
  if (!axis) return false;
  e.call_for(at, at.node.op_type == "CumProd" ? "aten::cumprod" : "aten::cumsum",
             {{e.tensor(at.id(0))}, {whole_number(*axis, "an axis")}});
  return true;
}

constexpr OpRow rows[] = {
    {"ReduceMean", infer_reduce, lower_reduce, 0, bits({1})},
    {"ReduceSum", infer_reduce, lower_reduce, 0, bits({1})},
    {"ReduceMax", infer_reduce, lower_reduce, 0, bits({1})},
    {"ReduceMin", infer_reduce, lower_reduce, 0, bits({1})},
    {"ReduceProd", infer_reduce, lower_reduce, 0, bits({1})},
    {"ReduceL1", infer_reduce, lower_reduce, 0, bits({1})},
    {"ReduceL2", infer_reduce, lower_reduce, 0, bits({1})},
    {"ReduceLogSumExp", infer_reduce, lower_reduce, 0, bits({1})},
    {"ReduceLogSum", infer_reduce, lower_reduce, 0, bits({1})},
    {"ReduceSumSquare", infer_reduce, lower_reduce, 0, bits({1})},
    {"ArgMax", infer_arg, lower_arg},
    {"ArgMin", infer_arg, lower_arg},
    {"TopK", infer_topk, lower_topk, 0, bits({1})},
    {"CumSum", infer_cumsum, lower_cumsum, 0, bits({1})},
    {"CumProd", infer_same, lower_cumsum, 0, bits({1})},
};

}  // namespace

Rows reduction_rows() { return {rows, std::size(rows)}; }

}  // namespace memplan::onnx_format
