// Nodes, arguments and values of the schema's graphs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>

#include "estimators/frontends/torch_export/program.h"

namespace memplan::torch_export {

/// TensorMeta of the schema. `name`, `where`: of the tensor and the file, for errors.
TensorMeta tensor_meta(const nlohmann::json& j, const std::string& name, const std::string& where);

/// Reads into a Program. Missing keys throw nlohmann's exceptions; unknown keys are ignored, because minor versions add
/// some.
class Reader {
 public:
  Reader(Program& program, std::string where) : program_(program), where_(std::move(where)) {}

  /// A graph and its subgraphs; returns its index. Names of the graph read last stay known to intern().
  std::int32_t graph(const nlohmann::json& j, int depth);

  /// One Argument of the schema; a name becomes a ValueId, forms that no estimate needs become strings.
  Arg argument(const nlohmann::json& j, int depth);

  NameId intern(const std::string& name);
  const std::string& where() const { return where_; }

 private:
  void node(const nlohmann::json& j, Node& out, int depth);
  void outputs(const nlohmann::json& j, std::vector<NameId>& out, int depth);
  Arg named(const nlohmann::json& j, const char* key);
  void module_stack(const std::string& text, Node& out) const;

  Program& program_;
  std::string where_;
  std::unordered_map<std::string, NameId> names_;                     ///< of the graph being read
  std::unordered_map<std::string, std::vector<std::string>> traces_;  ///< most nodes of a line share its trace
};

}  // namespace memplan::torch_export
