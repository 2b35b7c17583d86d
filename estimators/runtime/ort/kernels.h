// The CUDA provider's kernels: which ops have one, and what the planner asks of them
// (onnxruntime/core/providers/cuda/cuda_execution_provider.cc and the kernels' definitions, 1.31).
#pragma once

#include <cstdint>
#include <string_view>

#include "estimators/graph/graph.h"

namespace memplan::ort {

struct Kernel {
  std::string_view op;
  std::uint32_t host_inputs = 0;  ///< bit i: input i is read from host memory
  bool host_output = false;       ///< the result is in host memory
  bool alias = false;             ///< the first output is the first input under another shape
  bool in_place = false;          ///< the first output may take the place of the first input
};

/// None where the table has no kernel of this op for the CUDA provider, or the node is marked: the op runs on the CPU,
/// or memplan does not know it.
const Kernel* kernel_of(const GraphNode& node);

/// Key of a node's metadata: the version that runs has no kernel of this form of the op.
inline constexpr const char* on_cpu_key = "onnxruntime.cpu";

/// Whether that kernel is there for the types of this node's inputs: biases of quantized layers are int32, of which
/// DequantizeLinear has one for the CPU alone.
bool takes_types(const Graph& graph, const GraphNode& node);

/// Ops that ONNX Runtime runs on the CPU because the CUDA provider has no kernel.
bool known_without_kernel(const GraphNode& node);

inline bool reads_on_host(const Kernel& kernel, std::size_t input) {
  return input < 32 && (kernel.host_inputs >> input & 1u) != 0;
}

}  // namespace memplan::ort
