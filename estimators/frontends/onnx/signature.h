// What PyTorch's exporter says about inputs and outputs: `pkg.torch.export.ExportedProgram.graph_signature`, the
// printed ExportGraphSignature. One line each:
//   p_conv1_weight: PARAMETER target='conv1.weight'
//   b_bn1_running_mean: BUFFER target='bn1.running_mean' persistent=True
//   x: USER_INPUT            linear: USER_OUTPUT            getitem_3: BUFFER_MUTATION target='bn1.running_mean'
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

struct SignatureLine {
  std::string_view name;    ///< the FX name: "p_conv1_weight"
  std::string_view kind;    ///< "PARAMETER", "BUFFER", "CONSTANT_TENSOR", "USER_INPUT" …
  std::string_view target;  ///< "conv1.weight"; empty where there is none
  bool persistent = true;
};

struct Signature {
  std::vector<SignatureLine> inputs;  ///< parameters in registration order, then buffers, then user inputs
  std::vector<SignatureLine> outputs;
};

/// Lines of another form are skipped. The views point into `text`.
Signature parse_signature(std::string_view text);

/// Of the graph's metadata; empty where there is none. The views point into it.
Signature signature_of(const Graph& graph);

/// A value, with the sizes of the tensor that the file stores as it.
GraphValue value_with_sizes(const Graph& graph, GraphValueId id);

/// A tensor that the file lost, as the exporter would have stored it.
GraphValueId add_stored(Graph& graph, const SignatureLine& line, DType dtype, std::vector<std::int64_t> sizes);

}  // namespace memplan::onnx_format
