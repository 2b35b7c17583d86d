#include "estimators/frontends/onnx/lost_calls.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <set>

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

OpenUsers::OpenUsers(const Graph& graph, const FxProgram& program)
    : open_(program.groups.size(), 0), only_one_gone_(program.groups.size(), false) {
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
    only_one_gone_[k] = open_[k] == 1 && named[static_cast<std::size_t>(call.name)] == 0;
  }
}

bool OpenUsers::take(std::int32_t group) {
  std::int64_t& open = open_[static_cast<std::size_t>(group)];
  if (open <= 0) return false;
  --open;
  return true;
}

bool OpenUsers::none_left(std::int32_t group) const { return open_[static_cast<std::size_t>(group)] == 0; }

bool OpenUsers::only_one_gone(std::int32_t group) const { return only_one_gone_[static_cast<std::size_t>(group)]; }

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

namespace {

/// Ops of sizes, masks, positions and conversions, which come and go for other reasons.
bool tells_nothing(std::string_view op) {
  for (const std::string_view o :
       {"getitem",     "arange",         "full",         "full_like",    "empty",      "zeros",
        "ones",        "new_zeros",      "new_ones",     "new_full",     "zeros_like", "ones_like",
        "linspace",    "scalar_tensor",  "minimum",      "maximum",      "index",      "where",
        "cumsum",      "tril",           "triu",         "logical_and",  "logical_or", "logical_not",
        "bitwise_and", "bitwise_or",     "bitwise_not",  "floor_divide", "remainder",  "convert_element_type_default",
        "copy",        "select_scatter", "slice_scatter"})
    if (op == o) return true;
  return op.starts_with("sym_") || counts_sizes(op) || may_do_nothing(op);
}

/// torch.fx gives no node the name of a function of Python: the first sum is "sum_1".
bool is_python_name(std::string_view op) {
  for (const std::string_view o :
       {"sum", "abs", "max", "min", "any", "all", "round", "sorted", "complex", "float", "int"})
    if (op == o) return true;
  return false;
}

}  // namespace

std::vector<std::string> left_out_names(const FxProgram& program) {
  constexpr std::int64_t most = 100'000;      // numbers beyond are those of copies
  constexpr std::size_t most_names = 10'000;  // no exporter loses more
  std::map<std::string_view, std::set<std::int64_t>> there;
  for (const FxGroup& group : program.groups)
    if (group.name >= 0 && group.text.target.starts_with("torch.ops.aten.")) there[op_of_name(group.text.name)];
  for (const std::string_view name : program.names)
    if (const auto it = there.find(op_of_name(name)); it != there.end())
      if (const std::int64_t n = number_of_name(name); n < most) it->second.insert(n);
  std::vector<std::string> out;
  for (const auto& [op, numbers] : there) {
    if (tells_nothing(op)) continue;
    std::int64_t next = is_python_name(op) ? 1 : 0;
    for (const std::int64_t n : numbers)
      for (; next <= n; ++next)
        if (next < n && out.size() < most_names)
          out.push_back(next == 0 ? std::string(op) : fmt::format("{}_{}", op, next));
  }
  return out;
}

}  // namespace memplan::onnx_format
