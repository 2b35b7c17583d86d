#include "estimators/frontends/onnx/call_frames.h"

#include <algorithm>

namespace memplan::onnx_format {

namespace {

constexpr std::string_view frame_alone = "(forward)";

/// "super().forward(x)" and "nn.LayerNorm.forward(self, x)".
bool calls_base_class(std::string_view line) {
  if (line.find("super().") != line.npos) return true;
  constexpr std::string_view call = ".forward(self";
  const auto at = line.find(call);
  if (at == line.npos || at + call.size() >= line.size()) return false;
  const char after = line[at + call.size()];
  return after == ',' || after == ')' || after == ' ';
}

bool calls_forward(std::string_view line) { return line.find(".forward(") != line.npos && !calls_base_class(line); }

/// "encoder.layers.0" of "encoder.layers.0.attention".
std::string owner_of(const std::string& path) {
  const auto dot = path.rfind('.');
  return dot == std::string::npos ? std::string() : path.substr(0, dot);
}

}  // namespace

bool without_module(std::string_view module_class) { return module_class == frame_alone; }

CallFrames call_frames(std::vector<std::string> paths, std::vector<std::string> classes,
                       std::vector<std::string> lines) {
  classes.resize(paths.size());
  CallFrames f{std::move(paths), std::move(classes), std::move(lines)};
  if (f.lines.size() > f.paths.size()) {
    std::vector<std::string> fewer;
    for (std::size_t i = 0; i < f.lines.size(); ++i)
      if (i == 0 || !calls_base_class(f.lines[i - 1])) fewer.push_back(f.lines[i]);
    f.lines = std::move(fewer);
  }
  const auto more = f.lines.size() > f.paths.size() ? f.lines.size() - f.paths.size() : 0;
  if (more > 0 && !f.paths.empty() &&
      more == static_cast<std::size_t>(std::count_if(f.lines.begin(), f.lines.end() - 1, calls_forward)))
    for (std::size_t i = 1; i < f.lines.size(); ++i) {
      if (!calls_forward(f.lines[i - 1])) continue;
      const auto at = static_cast<std::ptrdiff_t>(std::min(i, f.paths.size()));
      std::string path = i < f.paths.size() ? owner_of(f.paths[i]) : std::string();
      f.paths.insert(f.paths.begin() + at, std::move(path));
      f.classes.insert(f.classes.begin() + at, std::string(frame_alone));
    }
  return f;
}

}  // namespace memplan::onnx_format
