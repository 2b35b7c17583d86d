// What exporters write down beside nodes and values.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace memplan::onnx_format {

/// The text under a key; empty where there is none.
inline std::string_view note_at(const std::map<std::string, std::string>& metadata, const char* key) {
  const auto it = metadata.find(key);
  return it == metadata.end() ? std::string_view{} : std::string_view(it->second);
}

/// The innermost frame of a printed trace: file, number and text of the line; empty where there is none.
inline std::string_view last_frame(std::string_view trace) {
  const auto at = trace.rfind("File \"");
  return at == trace.npos ? std::string_view() : trace.substr(at);
}

/// The file that frames in a region without gradients or autocast name: the region is a graph of its own, and its
/// nodes have that graph's lines.
inline constexpr std::string_view file_of_region = "<eval_with_key>";

/// Such a node stands in no module.
inline bool is_of_region(std::string_view trace) {
  return trace.find("File \"" + std::string(file_of_region)) != std::string_view::npos;
}

/// onnxscript's optimizer moved an F.pad into this convolution, and says so.
inline bool has_fused_pad(const std::map<std::string, std::string>& metadata) {
  return note_at(metadata, "pkg.onnxscript.rewriter.rule_name").find("FuseConvPad") != std::string_view::npos;
}

}  // namespace memplan::onnx_format
