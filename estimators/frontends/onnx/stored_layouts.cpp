#include "estimators/frontends/onnx/stored_layouts.h"

#include <cctype>
#include <variant>

#include "estimators/frontends/onnx/metadata.h"
#include "estimators/graph/exporter_notes.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

std::vector<std::int64_t> put_in_dims(const FxGroup& group, const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> dims;
  const auto rank = static_cast<std::int64_t>(sizes.size());
  const auto& args = group.text.args;
  const auto* dim = args.size() > 2 ? std::get_if<std::int64_t>(&args[2].value) : nullptr;
  if (group.text.target.find("group_norm") != std::string_view::npos)
    for (std::int64_t i = 1; i < rank; ++i) dims.push_back(i);
  else if (group.text.target == "torch.ops.aten.repeat_interleave.self_int" && dim && rank > 1)
    if (const std::int64_t at = *dim < 0 ? *dim + rank - 1 : *dim; at >= 0 && at + 1 < rank && sizes[at + 1] == 1)
      dims.push_back(at + 1);
  return dims;
}

bool is_stored_turned(const FxGroup& group, const GraphNode& node, std::size_t input) {
  if (group.text.target.find("aten.linear") != std::string_view::npos) return node.op_type == "MatMul" && input == 1;
  if (group.text.target.find("aten.index.Tensor") == std::string_view::npos || node.op_type != "GatherND") return false;
  const auto* at = group.text.args.size() > 1 ? std::get_if<Arg::List>(&group.text.args[1].value) : nullptr;
  return input == 0 && at && !at->empty() && at->front().is_none();
}

bool may_show_all(std::string_view op) {
  for (const std::string_view o : {"view", "_unsafe_view", "reshape", "expand", "unsqueeze", "slice", "alias"})
    if (op == o) return true;
  return false;
}

namespace {

/// "self.scale.view(…)" names "scale".
bool names_attribute(std::string_view line, std::string_view name) {
  for (auto at = line.find(name); at != line.npos; at = line.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    const bool ends =
        end == line.size() || (std::isalnum(static_cast<unsigned char>(line[end])) == 0 && line[end] != '_');
    if (at > 0 && line[at - 1] == '.' && ends) return true;
  }
  return false;
}

}  // namespace

std::optional<std::size_t> named_in_line(const GraphNode& node, const Signature& signature,
                                         const std::vector<std::size_t>& own,
                                         const std::unordered_map<std::size_t, GraphValueId>& present) {
  const std::string_view line = last_frame(note_at(node.metadata, stack_trace_key));
  std::optional<std::size_t> found;
  for (const std::size_t i : own) {
    const std::string_view target = signature.inputs[i].target;
    if (present.contains(i) || !names_attribute(line, leaf_of(target))) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

}  // namespace memplan::onnx_format
