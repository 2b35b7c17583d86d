// Differentiable ops of the joint graph: each emits what Inductor's decompositions make of the ATen op and leaves the
// derivative of it (tools/autograd/derivatives.yaml), whose ops are decomposed in their turn.
#pragma once

#include "estimators/runtime/torch/compiled/prims.h"

namespace memplan::compiled::grad {

using prim::Number;

Var add(Tracer&, const Var&, const Var&);
Var add(Tracer&, const Var&, Number);
Var sub(Tracer&, const Var&, const Var&);
Var mul(Tracer&, const Var&, const Var&);
Var mul(Tracer&, const Var&, Number);
Var div(Tracer&, const Var&, const Var&);
Var div(Tracer&, const Var&, Number);
Var convert(Tracer&, const Var&, DType);
Var view(Tracer&, const Var&, const Dims& sizes);
Var reshape(Tracer&, const Var&, const Dims& sizes);
Var permute(Tracer&, const Var&, const Dims& order);
Var transpose(Tracer&, const Var&, int a, int b);
Var expand(Tracer&, const Var&, const Dims& sizes);
Var unsqueeze(Tracer&, const Var&, int dim);
Var squeeze(Tracer&, const Var&, int dim);
Var slice(Tracer&, const Var&, int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1);
Var select(Tracer&, const Var&, int dim, std::int64_t index);
Vars split(Tracer&, const Var&, const std::vector<std::int64_t>& sizes, int dim, std::string constants);
Var clone(Tracer&, const Var&, op::Format = op::Format::contiguous);
Var contiguous(Tracer&, const Var&);
Var cat(Tracer&, const Vars&, int dim);
Var sum(Tracer&, const Var&, const Dims& dims, bool keepdim);
Var mean(Tracer&, const Var&, const Dims& dims, bool keepdim);
Var mm(Tracer&, const Var&, const Var&);
Var bmm(Tracer&, const Var&, const Var&);
Var addmm(Tracer&, const Var& bias, const Var&, const Var&);
Var matmul(Tracer&, const Var&, const Var&);
Var linear(Tracer&, const Var&, const Var& weight, const Var& bias);
Var softmax(Tracer&, const Var&, int dim);
Var safe_softmax(Tracer&, const Var&);
Var log_softmax(Tracer&, const Var&, int dim);
Var dropout_in_place(Tracer&, const Var&, double p);
Var dropout(Tracer&, const Var&, double p);
Var constant_pad(Tracer&, const Var&, const std::vector<std::int64_t>& pads);

}  // namespace memplan::compiled::grad
