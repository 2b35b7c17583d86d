#include "estimators/frontends/onnx/stored_layouts.h"

#include <variant>

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

}  // namespace memplan::onnx_format
