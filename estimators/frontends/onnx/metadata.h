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

}  // namespace memplan::onnx_format
