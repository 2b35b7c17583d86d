// Keys of what exporters write down beside nodes.
#pragma once

namespace memplan {

/// torch.onnx's dynamo exporter: the line of the exported program that a node was made of.
inline constexpr const char* fx_node_key = "pkg.torch.onnx.fx_node";
/// The name in that program of what a value or a stored tensor is.
inline constexpr const char* original_name_key = "pkg.torch.onnx.original_node_name";

}  // namespace memplan
