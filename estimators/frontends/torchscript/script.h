// A TorchScript program as memplan-torch sends it: the forward method with all calls written out. It has no shapes, so
// it becomes ATen calls only when it is run on paper (estimators/unroll/unroll.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "estimators/base/dtype.h"

namespace memplan::torchscript {

using ValueNo = std::int32_t;  ///< of a value of the program, dense from 0

/// What the program has as a constant.
struct Literal {
  struct None {};
  struct TensorNo {
    std::int32_t index = -1;  ///< into Script::tensors
  };
  /// Module.training: as saved, unless the setup is inference.
  struct Training {
    bool saved = true;
  };
  struct Device {
    std::string name;
  };
  struct Object {
    std::string class_name;
  };
  struct List {
    std::vector<Literal> items;
    bool tuple = false;
  };
  struct Dictionary {
    std::vector<Literal> keys, values;  ///< one each
  };
  std::variant<None, bool, std::int64_t, double, std::string, TensorNo, Training, Device, Object, List, Dictionary>
      value;
};

enum class TensorKind : std::uint8_t { parameter, buffer, constant };

struct ScriptTensor {
  std::string name;  ///< empty for constants
  TensorKind kind = TensorKind::constant;
  DType dtype = DType::float32;
  std::vector<std::int64_t> sizes;
  bool requires_grad = false;
  std::optional<Literal> number;  ///< of constants of one element
  std::vector<std::string> also;  ///< other names of the same parameter
};

struct Node;

struct Block {
  std::vector<ValueNo> inputs, outputs;
  std::vector<Node> nodes;
};

struct Node {
  std::string op;  ///< "aten::add.Tensor", "prim::If"
  std::vector<ValueNo> inputs, outputs;
  std::vector<Block> blocks;
  Literal constant;                ///< of prim::Constant
  std::string name;                ///< attribute that it gets or sets
  std::vector<std::string> types;  ///< of prim::isinstance
  std::int32_t stack = -1;         ///< index into Script::stacks
};

/// Modules around a node, outermost first. Lines are empty, or one per module as in Scope::source.
struct Stack {
  std::vector<std::string> paths, classes, lines;
};

struct SchemaArgument {
  std::string name;
  std::string kind;  ///< "dtype", "memory_format", "layout", "device" for numbers that stand for one; else empty
  bool keyword = false;
  std::optional<Literal> standard;  ///< default value
};

struct ScriptInput {
  ValueNo id = -1;
  std::string name, type;  ///< "Tensor", "Optional[Tensor]", "int"
  std::optional<Literal> standard;
  std::optional<DType> dtype;  ///< given by the user, together with the sizes in Model::graphs[0]
};

struct Script {
  std::string torch_version;  ///< of the LibTorch that read it
  std::int64_t bytes_read = 0;
  std::vector<ScriptInput> inputs;
  std::vector<ScriptTensor> tensors;
  std::vector<Stack> stacks;
  std::map<std::string, std::vector<SchemaArgument>, std::less<>> schemas;  ///< by Node::op
  Block body;
  ValueNo values = 0;  ///< how many
};

}  // namespace memplan::torchscript
