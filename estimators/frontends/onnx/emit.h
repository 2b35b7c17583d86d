// Appends ATen calls for ONNX nodes to a tape.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/frontends/onnx/inferred.h"
#include "estimators/frontends/onnx/same_type_casts.h"
#include "estimators/frontends/onnx/values.h"
#include "estimators/tape/tape.h"

namespace memplan {
struct TrainingSetup;
}

namespace memplan::onnx_format {

using Kwargs = std::vector<std::pair<std::string, Arg>>;

Arg list_of(const Sizes& numbers);

class Emit {
 public:
  Emit(const InferredValues& inferred, const TrainingSetup& setup, Values& values, Tape& tape)
      : inferred(inferred), setup(setup), values(values), tape(tape) {}

  bool training() const;
  /// Whether a batch norm trains. In a file where the texts of some say so, those whose texts say otherwise evaluate in
  /// training as well; in any other file all do what the model does.
  bool norm_trains(const GraphNode& node) const;

  /// The tensor behind a value; contents that no call makes become a constant of the tape.
  ValueId tensor(GraphValueId id);
  /// None for an absent input.
  Arg optional(const At& at, std::size_t input);
  /// Whether the program has a Python number there: is_python_number, and no parameter went into it.
  bool is_number(GraphValueId id) const;
  /// The number when the value is one known number that PyTorch code writes as such, else the tensor.
  Arg operand(GraphValueId id);

  /// One call with one output, named after `name` of the graph.
  ValueId call(std::string op, std::vector<Arg> args, Kwargs kwargs = {}, std::string name = {});
  /// One call whose outputs are those of the node (absent ones stay unbound).
  void call_for(const At& at, std::string op, std::vector<Arg> args, Kwargs kwargs = {}, std::size_t outputs = 1);
  /// The calls of one node by its row; an unknown call where it has none, or its row cannot tell.
  void lower_node(const GraphNode& node);
  void bind(GraphValueId id, ValueId value) {
    if (id >= 0) values.set(id, value);
  }
  std::string name_of(GraphValueId id) const;
  /// Counts what was rebuilt, for Tape::recovered.
  void recovered(const std::string& op, const std::string& from) { ++counts[{op, from}]; }

  const InferredValues& inferred;
  const TrainingSetup& setup;
  Values& values;
  Tape& tape;
  std::int32_t scope = -1;                                             ///< of the calls made next
  std::vector<SameTypeCast> same_type_casts;                           ///< by value; empty where nobody looked
  std::map<std::pair<std::string, std::string>, std::int64_t> counts;  ///< (op, from) -> how often

 private:
  mutable std::optional<bool> some_norms_train_;  ///< by the texts of the file; not looked for yet
};

/// Whether a value is one number that stands for a Python number: a constant of the graph or folded arithmetic, no
/// stored parameter.
bool is_python_number(const InferredValues& inferred, GraphValueId id);

}  // namespace memplan::onnx_format
