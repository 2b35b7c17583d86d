// The model as read from the file: nodes, tensors, open dimensions, module scopes. No decision is taken here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "estimators/base/dtype.h"

namespace memplan {

namespace torch_export {
struct Program;
}
namespace recording {
struct Recording;
}

/// A dimension: a number, or a symbol ("batch", "2*seq + 1"), or neither (size < 0 and no symbol).
struct Dim {
  std::int64_t size = -1;
  std::string symbol;
  bool open() const { return size < 0; }
};

inline std::vector<Dim> fixed_dims(const std::vector<std::int64_t>& sizes) {
  std::vector<Dim> dims;
  for (const std::int64_t n : sizes) dims.push_back({n, {}});
  return dims;
}

using GraphValueId = std::int32_t;  ///< index into Graph::values; -1 = absent optional input or output
using GraphId = std::int32_t;       ///< index into Model::graphs

struct GraphValue {
  std::string name;
  std::optional<DType> dtype;
  std::optional<std::vector<Dim>> shape;
  std::map<std::string, std::string> metadata;
};

/// A tensor stored in the file. Weights are never read; small integer and float contents (shape arithmetic) are.
struct StoredTensor {
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> integers;  ///< contents of small integer tensors, else empty
  std::vector<double> floats;          ///< contents of small floating tensors, else empty
  bool external = false;               ///< contents are in another file, which is never opened
  std::map<std::string, std::string> metadata;
};

using Attribute = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>,
                               std::vector<std::string>, StoredTensor, GraphId>;

struct GraphNode {
  std::string op_type;  ///< "Conv"
  std::string domain;   ///< "" for ai.onnx
  std::string name;
  std::vector<GraphValueId> inputs;
  std::vector<GraphValueId> outputs;
  std::map<std::string, Attribute> attributes;
  std::map<std::string, std::string> metadata;  ///< "pkg.torch.onnx.fx_node", "namespace" …
};

struct Graph {
  std::string name;
  std::vector<GraphValue> values;
  std::vector<GraphNode> nodes;      ///< in an order in which every input is produced before it is used
  std::vector<GraphValueId> inputs;  ///< without those that are initializers
  std::vector<GraphValueId> outputs;
  std::map<GraphValueId, StoredTensor> initializers;
  std::map<std::string, std::string> metadata;
};

template <class T>
class WorkedOut;  // bound_graph.h
namespace ort {
struct Arranged;
}
namespace onnx_format {
struct Prepared;
}

/// What all bindings of a graph to sizes share. A copy has its own, since its graph may be changed.
struct SharedByBindings {
  SharedByBindings() = default;
  SharedByBindings(const SharedByBindings&) {}
  SharedByBindings& operator=(const SharedByBindings& other) {
    if (this != &other) arranged = nullptr, prepared = nullptr;
    return *this;
  }
  SharedByBindings(SharedByBindings&&) = default;
  SharedByBindings& operator=(SharedByBindings&&) = default;

  mutable std::shared_ptr<WorkedOut<ort::Arranged>> arranged{};     ///< made with the first binding
  mutable std::shared_ptr<const onnx_format::Prepared> prepared{};  ///< likewise, of a file with its program's lines
};

struct Model {
  std::vector<Graph> graphs;  ///< [0] is the main graph, the others are subgraphs of If, Loop, Scan
  std::string format;         ///< "ONNX opset 20, pytorch 2.11.0"
  std::string path;
  std::string producer;
  std::string torch;  ///< version of PyTorch that wrote the file, "2.11.0+cu130"; empty where the file does not say
  std::int64_t opset = 0;
  std::int64_t ir = 0;       ///< version of the file format; 0 where there is none
  std::string rewritten_by;  ///< version of the ONNX Runtime that made this of the file's graph, "1.31.1"; empty: none
  std::vector<std::string> domains;  ///< of ops beside ONNX's own that the file says it may use
  std::int64_t file_bytes = 0;
  std::map<std::string, std::string> metadata;  ///< of the file as a whole
  std::vector<std::string> warnings;
  /// Of a .pt2 archive: its calls are ATen's already. graphs[0] then holds only the user inputs.
  std::shared_ptr<const torch_export::Program> exported;
  /// Of a recording: the steps themselves. graphs[0] then holds only the inputs.
  std::shared_ptr<const recording::Recording> recorded;
  SharedByBindings shared{};
};

}  // namespace memplan
