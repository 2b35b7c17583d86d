// The graph of a .pt2 archive as the file has it (torch/_export/serde/schema.py). No decision is taken here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "estimators/base/dtype.h"
#include "estimators/graph/graph.h"
#include "estimators/tape/tape.h"

namespace memplan::torchscript {
struct Script;
}

namespace memplan::torch_export {

using NameId = std::int32_t;  ///< index into Program::names; -1 = an output that is None

struct TensorMeta {
  DType dtype = DType::float32;
  std::vector<Dim> sizes;
  bool requires_grad = false;
};

/// A value of one of the graphs. Names of different graphs are different values.
struct Name {
  std::string text;
  std::optional<TensorMeta> tensor;
  std::optional<Dim> number;  ///< of a symbolic integer
};

enum class ArgumentKind : std::uint8_t { unknown, positional, keyword };  ///< files before 8.3 do not tell

struct NodeInput {
  std::string name;
  Arg value;  ///< a ValueId is a NameId
  ArgumentKind kind = ArgumentKind::unknown;
};

struct Node {
  std::string target;  ///< "torch.ops.aten.linear.default"
  std::vector<NodeInput> inputs;
  std::vector<NameId> outputs;
  std::vector<std::int32_t> graphs;         ///< subgraphs of a higher-order op, in the order of its arguments
  std::vector<std::string> paths, classes;  ///< module stack, outermost first
  std::vector<std::string> lines;           ///< of the stack trace, outermost first, as in Call::source
  bool in_checkpoint = false;  ///< its stack had frames of torch/utils/checkpoint.py, which are not among the lines
  std::string function;        ///< what the program called, "float" of "method_descriptor.float"; empty: not told
};

struct Subgraph {
  std::vector<NameId> inputs;  ///< -1 for inputs that are not values
  std::vector<Arg> outputs;
  std::vector<Node> nodes;
};

enum class InputKind : std::uint8_t { user, parameter, buffer, constant, other };

struct InputSpec {
  InputKind kind = InputKind::user;
  NameId name = -1;
  std::string target;  ///< "conv1.weight"
  std::string stored;  ///< the member of the archive's data/ that holds it; tied parameters share one. Empty: not told
};

enum class OutputKind : std::uint8_t { user, buffer_mutation, input_mutation, joint, other };

struct OutputSpec {
  OutputKind kind = OutputKind::user;
  Arg value;
  std::string target;  ///< of a mutation: the buffer
};

struct Program {
  std::vector<Name> names;
  std::vector<Subgraph> graphs;  ///< [0] is the program
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::map<std::string, std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>>> ranges;  ///< of symbols
  std::int64_t schema_major = 0, schema_minor = 0;
  std::string torch_version;
  /// Of a TorchScript file: what is above follows from it once the sizes of the inputs are known (unroll_script).
  std::shared_ptr<const torchscript::Script> script;
  bool decomposed =
      false;  ///< core ATen, as run_decompositions() leaves it; else the training IR, which keeps in-place ops
};

}  // namespace memplan::torch_export
