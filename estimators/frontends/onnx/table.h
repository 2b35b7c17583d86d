// The table of ONNX ops: one row per op type, in ops/<family>.cpp. A row says what the node's outputs are like and
// which ATen calls stand for it.
#pragma once

#include <cstdint>
#include <string_view>

#include "estimators/frontends/onnx/emit.h"
#include "estimators/frontends/onnx/inferred.h"

namespace memplan::onnx_format {

/// Sets what is known of the outputs; what it leaves out stays unknown.
using Infer = void (*)(const At&, std::vector<Inferred>& outputs);
/// Appends calls and binds the outputs. False: the op stays unknown here.
using Lower = bool (*)(const At&, Emit&);

struct OpRow {
  std::string_view op;  ///< "Conv"; of another domain "com.microsoft::Gelu"
  Infer infer = nullptr;
  Lower lower = nullptr;
  /// Bit i: input i becomes a Python number where it is one known number (x + 1), so that no tensor is made for it.
  std::uint32_t operands = 0;
  /// Bit i: PyTorch takes input i as numbers (sizes, axes), so that no tensor is made for it when they are known.
  std::uint32_t numbers = 0;
  /// Inputs of which only sizes matter.
  std::uint32_t sizes_only = 0;
};

/// None for ops without a row.
const OpRow* find_op(const GraphNode& node);

constexpr std::uint32_t bits(std::initializer_list<int> inputs) {
  std::uint32_t out = 0;
  for (int i : inputs) out |= 1u << i;
  return out;
}
constexpr std::uint32_t all_inputs = ~0u;

struct Rows {
  const OpRow* first = nullptr;
  std::size_t count = 0;
  const OpRow* begin() const { return first; }
  const OpRow* end() const { return first + count; }
};

// One function per file of ops/.
Rows elementwise_rows();
Rows unary_rows();
Rows view_rows();
Rows slice_rows();
Rows shape_rows();
Rows product_rows();
Rows layer_rows();
Rows window_rows();
Rows reduction_rows();
Rows indexing_rows();
Rows recurrent_rows();
Rows attention_rows();
Rows loss_rows();

}  // namespace memplan::onnx_format
