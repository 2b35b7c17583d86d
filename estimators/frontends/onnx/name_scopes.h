// Module scopes of nodes whose only trace of their module is their name: "/layers.0/attn/MatMul".
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan::onnx_format {

/// The module path in a node's name: "/layer1/layer1.0/conv1/Conv" -> "layer1.0.conv1". Children of containers carry
/// the container's path already. Empty for nodes of the root and names of another form.
std::string module_of(std::string_view node_name);

/// Follows nodes in program order and makes scopes for them.
class NameScopes {
 public:
  explicit NameScopes(Tape& tape) : tape_(tape) {}
  /// Nodes that a tool made stay in the scope of the node before.
  std::int32_t enter(std::string_view node_name);

 private:
  std::int32_t scope(std::int32_t parent, std::string_view part);
  Tape& tape_;
  std::string last_name_;
  std::int32_t last_ = -1;
  std::vector<std::pair<std::string, std::int32_t>> stack_;  ///< parts of the path and their scopes
  std::map<std::string, std::int32_t> calls_;                ///< of each path so far
};

}  // namespace memplan::onnx_format
