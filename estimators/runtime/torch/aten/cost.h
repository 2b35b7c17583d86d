// What one ATen call costs: floating-point operations of its matrix products and bytes that it moves.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "estimators/base/dtype.h"
#include "estimators/runtime/torch/aten/value.h"

namespace memplan {

/// A tensor as an op sees it.
struct Operand {
  std::vector<std::int64_t> sizes;
  DType dtype = DType::float32;
  bool wants_grad = false;
  std::int64_t elements() const;
  double bytes() const;
};

/// One call with concrete operands. Lists of tensors are flattened; numbers and None are left out.
struct OpCall {
  std::string_view op;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  std::string_view equation;      ///< of aten::einsum
  bool transposed = false;        ///< of aten::convolution: a transposed convolution
  bool scores_in_memory = false;  ///< attention of the math backend: its scores go through memory
};

/// Floating-point operations of matrix products, convolutions and attention: 2 per multiply-add, as
/// torch.utils.flop_counter counts them (causal attention counts in full). All other ops count 0: memory bounds them.
struct Flops {
  double forward = 0;
  double backward = 0;  ///< of the gradients that `wants_grad` asks for
};
Flops flops_of(const OpCall& call);

/// Bytes read and written in device memory if nothing stays in a cache. Gathers read what they return, not the table.
struct Traffic {
  double forward = 0, backward = 0;
};
Traffic traffic_of(const OpCall& call);

/// Bytes of all operands and results.
double bytes_touched(const OpCall& call);

/// aten::add_ and the like: nothing new is made, but a kernel runs.
bool is_in_place(std::string_view op);

}  // namespace memplan
