// Keys of what exporters write down beside nodes.
#pragma once

namespace memplan {

/// torch.onnx's dynamo exporter: the line of the exported program that a node was made of.
inline constexpr const char* fx_node_key = "pkg.torch.onnx.fx_node";
/// The name in that program of what a value or a stored tensor is.
inline constexpr const char* original_name_key = "pkg.torch.onnx.original_node_name";
/// The frames of the program that made a node: a line "File …, line …" and the text of each.
inline constexpr const char* stack_trace_key = "pkg.torch.onnx.stack_trace";
/// "PARAMETER", "BUFFER" …: what a stored tensor is in the exported program's signature.
inline constexpr const char* input_kind_key = "pkg.torch.export.graph_signature.InputSpec.kind";

}  // namespace memplan
