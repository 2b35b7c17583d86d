// Graphs in half precision on their way to the CPU provider, which has few kernels for them: it would put casts around
// every op and leave fusions out that the CUDA provider makes.
#pragma once

#include <optional>
#include <set>
#include <string>

namespace onnx {
class ModelProto;
}

namespace memplan {

struct Widened {
  int type = 0;                   ///< TensorProto's number of the half type; 0: the graph has none
  std::set<std::string> singles;  ///< tensors that are float32 in the file: scales of Resize and the like
};

/// Makes every tensor in half precision one in single precision, which all optimizers treat alike. None, and nothing
/// changed, where a graph mixes both: what the optimizers do there follows from the types.
std::optional<Widened> widen(::onnx::ModelProto& model);

/// Undoes that in what ONNX Runtime made of the graph.
void narrow(::onnx::ModelProto& rewritten, const Widened& widened);

}  // namespace memplan
