// What the exporter's numbers tell of calls that a file has lost: "%tanh_2 : [num_users=2]" is the third tanh, and two
// calls read it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// 2 of "%tanh : [num_users=2] = …"; 0 of other text.
std::int64_t users_of(std::string_view text);

/// By group of the program: users that no text of the file names.
class OpenUsers {
 public:
  OpenUsers(const Graph& graph, const FxProgram& program);
  /// A call that came back is one of them. False where none is left.
  bool take(std::int32_t group);
  /// All of its users are in the file: one more call cannot have read the same tensor.
  bool none_left(std::int32_t group) const;
  /// It had one user, and no text of the file reads it: what that one made of it went, and others read in its place.
  bool only_one_gone(std::int32_t group) const;

 private:
  std::vector<std::int64_t> open_;
  std::vector<bool> only_one_gone_;
};

/// Numbers that names leave out.
class LeftOut {
 public:
  explicit LeftOut(const FxProgram& program);
  /// Whether one is left out between the names of an op before a node and after it; `open`: where none comes after it.
  bool may_be(std::string_view op, std::size_t node, bool open) const;

 private:
  std::unordered_map<std::string, std::map<std::int32_t, std::int64_t>> by_op_;  ///< last node -> number of the name
};

/// Names between the first and the last of an op that no text of the file has, "cat_5" between "cat_4" and "cat_6": the
/// program made that call, and an optimizer merged it with another one or found that nobody reads it. Not of ops that
/// may do nothing, or that sizes, masks and positions are made by. `program`: with what was made again.
std::vector<std::string> left_out_names(const FxProgram& program);

}  // namespace memplan::onnx_format
