#include "estimators/frontends/onnx/lost_calls.h"

#include <charconv>
#include <iterator>

#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/metadata.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

std::int64_t users_of(std::string_view text) {
  constexpr std::string_view key = "[num_users=";
  const auto begin = text.find(key);
  std::int64_t n = 0;
  if (begin != text.npos) std::from_chars(text.data() + begin + key.size(), text.data() + text.size(), n);
  return n;
}

OpenUsers::OpenUsers(const Graph& graph, const FxProgram& program) : open_(program.groups.size(), 0) {
  std::vector<std::int64_t> named(program.names.size(), 0);
  const auto name = [&](ValueId id) { ++named[static_cast<std::size_t>(id.index)]; };
  for (const FxGroup& call : program.groups) {
    for (const Arg& a : call.text.args) for_each_value(a, name);
    for (const auto& [key, a] : call.text.kwargs) for_each_value(a, name);
  }
  for (std::size_t k = 0; k < program.groups.size(); ++k) {
    const FxGroup& call = program.groups[k];
    if (call.name < 0) continue;
    const GraphNode& node = graph.nodes[static_cast<std::size_t>(call.nodes.back())];
    open_[k] = users_of(note_at(node.metadata, fx_node_key)) - named[static_cast<std::size_t>(call.name)];
  }
}

bool OpenUsers::take(std::int32_t group) {
  std::int64_t& open = open_[static_cast<std::size_t>(group)];
  if (open <= 0) return false;
  --open;
  return true;
}

bool OpenUsers::none_left(std::int32_t group) const { return open_[static_cast<std::size_t>(group)] == 0; }

LeftOut::LeftOut(const FxProgram& program) {
  for (const FxGroup& group : program.groups)
    if (group.name >= 0)
      by_op_[std::string(op_of_name(group.text.name))].emplace(group.nodes.back(), number_of_name(group.text.name));
}

bool LeftOut::may_be(std::string_view op, std::size_t node, bool open) const {
  const auto it = by_op_.find(std::string(op));
  if (it == by_op_.end()) return false;
  const auto next = it->second.upper_bound(static_cast<std::int32_t>(node));
  if (next == it->second.end() || next == it->second.begin()) return open;
  return next->second - std::prev(next)->second > 1;
}

}  // namespace memplan::onnx_format
