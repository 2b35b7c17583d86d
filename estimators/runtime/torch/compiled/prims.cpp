#include "estimators/runtime/torch/compiled/prims.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace memplan::compiled::prim {

std::string text(const Dims& dims) {
  std::string s = "[";
  for (const std::int64_t n : dims) s += std::to_string(n) + ",";
  return s + "]";
}

std::string text(const Number& n) { return fmt::format("{}{}", n.value, n.floating ? "f" : "i"); }

namespace {

Tensor number_like(Tracer& t, Number n) { return op::number(t.run, n.floating); }

Dims wrapped(const Dims& dims, int rank) {
  Dims result;
  for (const std::int64_t d : dims) result.push_back(op::wrap_dim(d, rank));
  return result;
}

}  // namespace

Var unary_as(Tracer& t, std::string_view op, const Var& a, DType dtype, std::string constants) {
  return t.emit(op, {a}, std::move(constants), op::pointwise(t.run, {a.t}, dtype));
}

Var unary(Tracer& t, std::string_view op, const Var& a, std::string constants) {
  return unary_as(t, op, a, a.t->dtype, std::move(constants));
}

Var binary(Tracer& t, std::string_view op, const Var& a, const Var& b) {
  return t.emit(op, {a, b}, {}, op::pointwise(t.run, {a.t, b.t}, op::result_type({a.t, b.t})));
}

Var binary(Tracer& t, std::string_view op, const Var& a, Number n) {
  const Tensor number = number_like(t, n);
  DType dtype = op::result_type({a.t, number});
  if (op == "div" && !is_floating(dtype)) dtype = DType::float32;
  return t.emit(op, {a}, text(n), op::pointwise(t.run, {a.t, number}, dtype));
}

Var binary(Tracer& t, std::string_view op, Number n, const Var& a) {
  const Tensor number = number_like(t, n);
  return t.emit(op, {a}, text(n) + " first", op::pointwise(t.run, {a.t, number}, op::result_type({a.t, number})));
}

Var compare(Tracer& t, std::string_view op, const Var& a, const Var& b) {
  return t.emit(op, {a, b}, {}, op::pointwise(t.run, {a.t, b.t}, DType::boolean));
}

Var compare(Tracer& t, std::string_view op, const Var& a, Number n) {
  return unary_as(t, op, a, DType::boolean, text(n));
}

Var where(Tracer& t, const Var& condition, const Var& yes, const Var& no) {
  const DType dtype = op::result_type({yes.t, no.t});
  return t.emit("where", {condition, yes, no}, {}, op::pointwise(t.run, {condition.t, yes.t, no.t}, dtype));
}

Var convert(Tracer& t, const Var& a, DType dtype) {
  if (a.t->dtype == dtype) return a;
  return t.emit("convert_element_type", {a}, std::to_string(static_cast<int>(dtype)), t.run.empty_like(a.t, dtype));
}

Var full(Tracer& t, const Dims& sizes, std::string value, DType dtype) {
  return t.emit("full", {}, fmt::format("{} {} {}", text(sizes), value, static_cast<int>(dtype)),
                t.run.empty(sizes, dtype));
}

Var view(Tracer& t, const Var& a, const Dims& sizes) {
  const Dims whole = op::infer_size(sizes, a.t->numel());
  return t.emit("view", {a}, text(sizes), op::view(t.run, a.t, whole));
}

Var reshape(Tracer& t, const Var& a, const Dims& sizes) {
  const Dims whole = op::infer_size(sizes, a.t->numel());
  return view(t, op::view_strides(*a.t, whole) ? a : clone(t, a), whole);
}

Var permute(Tracer& t, const Var& a, const Dims& order) {
  return t.emit("permute", {a}, text(order), op::permute(t.run, a.t, order));
}

Var t(Tracer& tracer, const Var& a) { return a.t->rank() < 2 ? a : permute(tracer, a, {1, 0}); }

Var expand(Tracer& t, const Var& a, const Dims& sizes) {
  return t.emit("expand", {a}, text(sizes), op::expand(t.run, a.t, sizes));
}

Var unsqueeze(Tracer& t, const Var& a, int dim) {
  const int at = op::wrap_dim(dim, a.t->rank() + 1);
  return t.emit("unsqueeze", {a}, std::to_string(dim), op::unsqueeze(t.run, a.t, at));
}

Var squeeze(Tracer& t, const Var& a, int dim) {
  return t.emit("squeeze", {a}, std::to_string(dim), op::squeeze(t.run, a.t, op::wrap_dim(dim, a.t->rank())));
}

Var squeeze(Tracer& t, const Var& a, const Dims& dims) {
  Dims order = wrapped(dims, a.t->rank());
  std::sort(order.begin(), order.end(), std::greater<>());
  Tensor result = a.t;
  for (const std::int64_t d : order) result = op::squeeze(t.run, result, static_cast<int>(d));
  return t.emit("squeeze", {a}, text(dims), result);
}

Var slice(Tracer& t, const Var& a, int dim, std::int64_t start, std::int64_t end, std::int64_t step) {
  return t.emit("slice", {a}, fmt::format("{} {} {} {}", dim, start, end, step),
                op::slice(t.run, a.t, dim, start, end, step));
}

Var select(Tracer& t, const Var& a, int dim, std::int64_t index) {
  return t.emit("select", {a}, fmt::format("{} {}", dim, index), op::select(t.run, a.t, dim, index));
}

Var clone(Tracer& t, const Var& a, op::Format format) {
  return t.emit("clone", {a}, std::to_string(static_cast<int>(format)), op::clone(t.run, a.t, format));
}

Var contiguous(Tracer& t, const Var& a) { return is_contiguous(*a.t) ? a : clone(t, a); }

Var reduce(Tracer& t, std::string_view op, const Var& a, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  Dims over = wrapped(dims, a.t->rank());
  if (over.empty())
    for (int d = 0; d < a.t->rank(); ++d) over.push_back(d);
  const Tensor result = op::sum(t.run, a.t, over, keepdim, dtype ? *dtype : a.t->dtype);
  return t.emit(op, {a}, fmt::format("{} {} {}", text(dims), keepdim, static_cast<int>(result->dtype)), result);
}

Var sum(Tracer& t, const Var& a, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  if (!dtype && t.in_backward() && t.autocast && is_half(a.t->dtype)) dtype = DType::float32;
  const bool whole = !is_floating(a.t->dtype) && !is_complex(a.t->dtype);
  return reduce(t, "sum", a, dims, keepdim, dtype ? *dtype : whole ? DType::int64 : a.t->dtype);
}

Var sum_to(Tracer& t, const Var& a, const Dims& sizes) {
  const int leading = a.t->rank() - sizes.size();
  Dims over;
  for (int d = 0; d < a.t->rank(); ++d)
    if (d < leading || (sizes[d - leading] == 1 && a.t->sizes[d] != 1)) over.push_back(d);
  Var result = over.empty() ? a : sum(t, a, over, true);
  return leading > 0 ? view(t, result, sizes) : result;
}

Vars var_mean(Tracer& t, const Var& a, const Dims& dims) {
  const Tensor one = op::sum(t.run, a.t, wrapped(dims, a.t->rank()), true);
  return t.emit_several("var_mean", {a}, text(dims), {one, t.run.empty_like(one)});
}

/// torch/_inductor/decomposition.py drops parts without elements, and one part alone is copied.
Var cat(Tracer& t, const Vars& parts, int dim) {
  TensorList tensors;
  Vars filled;
  for (const Var& p : parts) {
    tensors.push_back(p.t);
    if (p.t->sizes[op::wrap_dim(dim, p.t->rank())] != 0) filled.push_back(p);
  }
  const Tensor made = op::cat(t.run, tensors, op::wrap_dim(dim, tensors[0]->rank()));
  if (filled.size() == 1)
    return filled[0].t->dtype == made->dtype ? clone(t, filled[0]) : convert(t, filled[0], made->dtype);
  return t.emit("cat", filled.empty() ? parts : filled, std::to_string(dim), made, true);
}

namespace {

Var lowered(Tracer& t, const Var& a) {
  return t.in_backward() && t.autocast && is_floating(a.t->dtype) ? convert(t, a, t.autocast_dtype) : a;
}

}  // namespace

Var mm(Tracer& t, const Var& left, const Var& right) {
  const Var a = lowered(t, left), b = lowered(t, right);
  return t.emit("mm", {a, b}, {}, op::mm(t.run, a.t, b.t));
}
Var bmm(Tracer& t, const Var& left, const Var& right) {
  const Var a = lowered(t, left), b = lowered(t, right);
  return t.emit("bmm", {a, b}, {}, op::bmm(t.run, a.t, b.t));
}

Var random_like(Tracer& t, const Var& like) {
  // One buffer of seeds for the graph; its size is known when all have been counted (passes.h).
  if (t.seeds < 0) t.seeds = t.emit("inductor_seeds", {}, {}, t.run.empty({1}, DType::int64)).node;
  const Var seeds{.node = t.seeds, .t = t.run.empty({1}, DType::int64)};
  const Var seed = t.emit("inductor_lookup_seed", {seeds}, std::to_string(t.random++), t.run.empty({}, DType::int64));
  // In the order of the memory, and permuted to that of the dimensions.
  Dims order, sizes, back = Dims::filled(like.t->rank(), 0);
  for (int d = 0; d < like.t->rank(); ++d) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return like.t->strides[static_cast<int>(a)] > like.t->strides[static_cast<int>(b)];
  });
  for (int d = 0; d < order.size(); ++d) {
    sizes.push_back(like.t->sizes[static_cast<int>(order[d])]);
    back[static_cast<int>(order[d])] = d;
  }
  const DType dtype = DType::float32;
  const bool in_order = is_contiguous(*like.t) || !is_non_overlapping_and_dense(*like.t);
  const Var made = t.emit("inductor_random", {seed}, {}, t.run.empty(in_order ? like.t->sizes : sizes, dtype));
  return in_order ? made : permute(t, made, back);
}

Var iota(Tracer& t, std::int64_t length) {
  return t.emit("iota", {}, std::to_string(length), t.run.empty({length}, DType::int64));
}

Var widened(Tracer& t, const Var& a) { return is_half(a.t->dtype) ? convert(t, a, DType::float32) : a; }

}  // namespace memplan::compiled::prim
