// What exporters write down beside nodes and values.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "estimators/graph/exporter_notes.h"

namespace memplan::onnx_format {

/// The text under a key; empty where there is none.
inline std::string_view note_at(const std::map<std::string, std::string>& metadata, const char* key) {
  const auto it = metadata.find(key);
  return it == metadata.end() ? std::string_view{} : std::string_view(it->second);
}

inline constexpr std::string_view frame_begin = "File \"";  ///< of a frame of a printed trace

/// The innermost frame of a printed trace: file, number and text of the line; empty where there is none.
inline std::string_view last_frame(std::string_view trace) {
  const auto at = trace.rfind(frame_begin);
  return at == trace.npos ? std::string_view() : trace.substr(at);
}

/// Where frame `n` of a printed trace begins, outermost first; its end if it has no more.
inline std::size_t frame_at(std::string_view trace, std::size_t n) {
  std::size_t at = trace.find(frame_begin);
  while (n-- > 0 && at != trace.npos) at = trace.find(frame_begin, at + 1);
  return std::min(at, trace.size());
}

/// That frame, up to where the next one begins.
inline std::string_view frame_of(std::string_view trace, std::size_t n) {
  const std::size_t begin = frame_at(trace, n);
  return trace.substr(begin, frame_at(trace, n + 1) - begin);
}

inline std::size_t count_frames(std::string_view trace) {
  std::size_t n = 0;
  for (auto at = trace.find(frame_begin); at != trace.npos; at = trace.find(frame_begin, at + 1)) ++n;
  return n;
}

/// The file that frames in a region without gradients or autocast name: the region is a graph of its own, and its
/// nodes have that graph's lines.
inline constexpr std::string_view file_of_region = "<eval_with_key>";

/// Such a node stands in no module.
inline bool is_of_region(const std::map<std::string, std::string>& metadata) {
  return note_at(metadata, stack_trace_key).find("File \"" + std::string(file_of_region)) != std::string_view::npos;
}

/// onnxscript's optimizer moved an F.pad into this convolution, and says so.
inline bool has_fused_pad(const std::map<std::string, std::string>& metadata) {
  return note_at(metadata, "pkg.onnxscript.rewriter.rule_name").find("FuseConvPad") != std::string_view::npos;
}

}  // namespace memplan::onnx_format
