#include "estimators/frontends/onnx/call_frames.h"

#include <algorithm>
#include <cctype>

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

/// "attention.self" where the line of the frame "attention" calls `self.self(`; else empty.
std::string called_self(const std::string& path, std::string_view line) {
  constexpr std::string_view call = "self.self(";
  const auto at = line.find(call);
  const bool part = at != line.npos && at > 0 &&
                    (std::isalnum(static_cast<unsigned char>(line[at - 1])) != 0 || line[at - 1] == '_' || line[at - 1] == '.');
  if (at == line.npos || part) return {};
  return path.empty() ? "self" : path + ".self";
}

/// torch.export leaves a module out whose attribute is called "self", as those of attention often are. Its frame is
/// there, and the line that calls it.
void put_in_self(CallFrames& f) {
  for (std::size_t i = 1; i < f.lines.size() && i <= f.paths.size() && f.lines.size() > f.paths.size(); ++i) {
    const std::string path = called_self(f.paths[i - 1], f.lines[i - 1]);
    if (path.empty() || (i < f.paths.size() && !f.paths[i].starts_with(path + "."))) continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    f.paths.insert(f.paths.begin() + at, path);
    f.classes.insert(f.classes.begin() + at, std::string());
  }
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
  put_in_self(f);
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
