// The ops that joint graphs are made of, as plain functions: each emits one node (or the few that its decomposition
// has). None leaves a derivative; the differentiable ops are in autograd.h.
#pragma once

#include <optional>
#include <string_view>

#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/compiled/tracer.h"

namespace memplan::compiled::prim {

/// A number among the arguments, as it is written; whether it has a point matters for the dtype.
struct Number {
  double value = 0;
  bool floating = true;
};
std::string text(const Dims& dims);
std::string text(const Number& number);

// --- pointwise -------------------------------------------------------------------------------------------------------
Var unary(Tracer&, std::string_view op, const Var&, std::string constants = {});
Var unary_as(Tracer&, std::string_view op, const Var&, DType, std::string constants = {});
Var binary(Tracer&, std::string_view op, const Var&, const Var&);
Var binary(Tracer&, std::string_view op, const Var&, Number);
/// The number first: `1 - x`.
Var binary(Tracer&, std::string_view op, Number, const Var&);
Var compare(Tracer&, std::string_view op, const Var&, const Var&);
Var compare(Tracer&, std::string_view op, const Var&, Number);
Var where(Tracer&, const Var& condition, const Var& yes, const Var& no);
/// aten::_to_copy: nothing where the dtype is the same.
Var convert(Tracer&, const Var&, DType);
Var full(Tracer&, const Dims& sizes, std::string value, DType);
inline Var scalar(Tracer& t, std::string value, DType dtype) { return full(t, {}, std::move(value), dtype); }

// --- views -----------------------------------------------------------------------------------------------------------
Var view(Tracer&, const Var&, const Dims& sizes);
/// at::reshape: a view, or a copy and a view where the strides do not allow one.
Var reshape(Tracer&, const Var&, const Dims& sizes);
Var permute(Tracer&, const Var&, const Dims& order);
Var t(Tracer&, const Var&);
Var expand(Tracer&, const Var&, const Dims& sizes);
Var unsqueeze(Tracer&, const Var&, int dim);
Var squeeze(Tracer&, const Var&, int dim);
Var squeeze(Tracer&, const Var&, const Dims& dims);
Var slice(Tracer&, const Var&, int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1);
Var select(Tracer&, const Var&, int dim, std::int64_t index);
Var clone(Tracer&, const Var&, op::Format = op::Format::contiguous);
/// at::contiguous
Var contiguous(Tracer&, const Var&);

// --- reductions and others -------------------------------------------------------------------------------------------
Var reduce(Tracer&, std::string_view op, const Var&, const Dims& dims, bool keepdim, std::optional<DType> = {});
Var sum(Tracer&, const Var&, const Dims& dims, bool keepdim, std::optional<DType> = {});
Var sum_to(Tracer&, const Var&, const Dims& sizes);
/// Variance and mean, with the dimensions kept.
Vars var_mean(Tracer&, const Var&, const Dims& dims);
Var cat(Tracer&, const Vars&, int dim);
Var mm(Tracer&, const Var&, const Var&);
Var bmm(Tracer&, const Var&, const Var&);
Var random_like(Tracer&, const Var&);
Var iota(Tracer&, std::int64_t length);

/// pw_cast_for_opmath: half types are computed in fp32, and the result is converted back.
Var widened(Tracer&, const Var&);
inline bool is_half(DType d) { return d == DType::bfloat16 || d == DType::float16; }
inline DType wide(DType d) { return is_half(d) ? DType::float32 : d; }

}  // namespace memplan::compiled::prim
