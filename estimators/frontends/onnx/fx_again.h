// Calls that an exporter's optimizer worked out ahead of the run, or found to be equal to another one, made once more.
#pragma once

#include <memory>
#include <string_view>

#include "estimators/frontends/onnx/emit.h"
#include "estimators/graph/graph.h"
#include "estimators/tape/tape.h"

namespace memplan::onnx_format {

struct Again {
  std::shared_ptr<const Call> call;  ///< its tensors are values of the graph
  /// Of a parameter that the file has no tensor for: "add_18" of `self.gamma + offset` was worked out and found to be
  /// equal to some other tensor.
  bool of_lost = false;
};

/// "1.0 + weight" that an optimizer worked out, `name` being "add_5": its argument stands for the parameter. `name` is
/// one of folded_op.
std::shared_ptr<const Call> folded_call(const Graph& graph, GraphValueId id, std::string_view name);

/// Makes it in the module where it is needed, and of that module's parameters: of one that the file has no tensor for
/// if so said; where the module has none, the value is what the file has.
ValueId call_again(const Again& made, Emit& e);

}  // namespace memplan::onnx_format
