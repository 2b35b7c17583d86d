// The text that PyTorch's ONNX exporter leaves on each node, in `pkg.torch.onnx.fx_node`:
//   %linear : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args = (%x, %p_w), kwargs = {})
// FX prints strings without quotes, so a bare word that is not a number, a dtype or a Python constant is a string.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan::onnx_format {

struct FxText {
  std::string_view name;    ///< "linear", without the percent sign
  std::string_view target;  ///< "torch.ops.aten.linear.default"
  std::vector<Arg> args;    ///< a name is the ValueId that `intern` gave for it
  std::vector<std::pair<std::string, Arg>> kwargs;
};

using Intern = std::function<ValueId(std::string_view)>;

/// The name before the colon; empty when `text` has another form.
std::string_view fx_name(std::string_view text);

/// Parses the whole text; false when it has another form (then `out` is unspecified).
bool parse_fx(std::string_view text, const Intern& intern, FxText& out);

/// "torch.ops.aten.add.Tensor" -> "aten::add.Tensor", "…linear.default" -> "aten::linear",
/// "operator.mul" -> "_operator.mul", "math.trunc" as it is.
std::string op_of_target(std::string_view target);

/// The strings of a Python list as printed: "['', 'layer1']" -> {"", "layer1"}.
std::vector<std::string_view> parse_python_strings(std::string_view text);

}  // namespace memplan::onnx_format
