#include "estimators/frontends/onnx/call_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "estimators/frontends/onnx/copied_calls.h"

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

bool calls_forward(std::string_view line) {
  return line.substr(0, line.find("lambda ")).find(".forward(") != line.npos && !calls_base_class(line);
}

/// "self.sublayer(x, lambda y: self.attention.forward(y, y, y))": a frame below calls it, and its line does not say so.
bool hands_forward(std::string_view line) {
  const auto at = line.find("lambda ");
  return at != line.npos && line.find(".forward(", at) != line.npos;
}

/// The modules "self.a" and "self.b.c" that a line of the frame `path` calls, by path.
std::vector<std::string> called_modules(const std::string& path, std::string_view line) {
  constexpr std::string_view self = "self.";
  const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; };
  std::vector<std::string> out;
  for (auto at = line.find(self); at != line.npos; at = line.find(self, at)) {
    const bool begins = at == 0 || !in_name(line[at - 1]);
    const std::size_t first = at += self.size();
    while (at < line.size() && in_name(line[at])) ++at;
    if (begins && at > first && at < line.size() && line[at] == '(')
      out.push_back((path.empty() ? "" : path + ".") + std::string(line.substr(first, at - first)));
  }
  return out;
}

/// "self.mac.unroll(x)" in the frame of line `i`: a method of the module "mac", which calls that module's own forward
/// by `self.forward(…)`. The next frame is that one, and no autograd function; unless "mac.unroll" is a module itself.
bool is_method(const CallFrames& f, std::size_t i, const std::vector<std::string>& called) {
  if (called.size() != 1 || (i < f.paths.size() && f.paths[i].starts_with(called[0] + "."))) return false;
  const std::string& base = f.paths[i - 1];
  const std::string_view own = std::string_view(called[0]).substr(base.empty() ? 0 : base.size() + 1);
  return own.find('.') != own.npos && !own.ends_with(".apply");
}

void put_in(CallFrames& f, std::size_t i, std::string path, std::string_view kind) {
  const auto at = static_cast<std::ptrdiff_t>(i);
  f.paths.insert(f.paths.begin() + at, std::move(path));
  f.classes.insert(f.classes.begin() + at, std::string(kind));
}

/// What torch.utils.checkpoint applies saves arguments and does nothing else.
bool is_of_checkpoint(std::string_view line) { return line.starts_with("torch/utils/checkpoint.py"); }

/// PyTorch's modules apply no autograd functions of models: `nn.Sequential(*layers)(x)`.
bool may_be_function(std::string_view line) {
  return !line.starts_with("torch/nn/modules/") && !is_of_checkpoint(line);
}

/// A module that the forward pass itself makes, and puts where another one was, is not among those that the exporter
/// knows. Its frame is there, and the line that calls it tells its path. Changes nothing where that does not bring both
/// lists together.
void put_in_made(CallFrames& f) {
  CallFrames g = f;
  for (std::size_t i = 1; i < g.lines.size() && i <= g.paths.size() && g.lines.size() > g.paths.size(); ++i) {
    const std::vector<std::string> called = called_modules(g.paths[i - 1], g.lines[i - 1]);
    const auto left_out = [&](const std::string& path) {
      return i == g.paths.size() || g.paths[i].starts_with(path + ".");
    };
    if (is_method(g, i, called) && i < g.paths.size() &&
        g.paths[i].starts_with(std::string(parent_of(called[0])) + ".")) {
      put_in(g, i, std::string(parent_of(called[0])), frame_alone);
      continue;
    }
    if (std::ranges::count_if(called, left_out) != 1) continue;
    put_in(g, i, *std::ranges::find_if(called, left_out), {});
    if (may_be_function(g.lines[i])) g.application = g.lines[i - 1];
  }
  if (g.lines.size() == g.paths.size()) f = std::move(g);
}

std::string_view file_of(std::string_view line) { return line.substr(0, line.find(':')); }

bool ends_with_path(std::string_view path, std::string_view end) {
  return path.ends_with(end) && (path.size() == end.size() || path[path.size() - end.size() - 1] == '/');
}

/// "torch/nn/modules/conv.py" of "torch.nn.modules.conv.Conv2d"; empty where the class does not say.
std::string file_of_class(std::string_view module_class) {
  const auto dot = module_class.rfind('.');
  if (dot == module_class.npos || module_class.starts_with("__main__")) return {};
  std::string file(module_class.substr(0, dot));
  std::ranges::replace(file, '.', '/');
  return file + ".py";
}

/// Whether a frame can be the forward of a class of the file: 2 where it is of that file, 0 where it is of another one,
/// from which the forward may be inherited; 1 where the class does not say.
int fits(std::string_view line, std::string_view file) {
  if (file.empty()) return 1;
  const std::string_view path = file_of(line);
  return ends_with_path(path, file) || ends_with_path(file, path) ? 2 : 0;
}

/// Whether the line calls the module by its name: "attention" of "self.attention(x)". Not one of a list, "layers.0".
bool calls_by_name(std::string_view line, std::string_view path) {
  const std::string_view leaf = path.substr(path.rfind('.') + 1);
  for (auto at = line.find(leaf); !leaf.empty() && at != line.npos; at = line.find(leaf, at + 1))
    if (at > 0 && line[at - 1] == '.' && line.substr(at + leaf.size()).starts_with('(')) return true;
  return false;
}

/// Which lines are no module's frames by the files that they and the classes are of, or nothing where the files allow
/// for several answers. `by_name`: by what the lines call as well.
std::vector<std::size_t> lines_alone(const CallFrames& f, bool by_name = false) {
  struct Best {
    int score = -1, ways = 0;
  };
  const std::size_t n = f.lines.size(), m = f.paths.size();
  std::vector<std::string> files;
  for (const std::string& c : f.classes) files.push_back(file_of_class(c));
  const auto score = [&](std::size_t i, std::size_t j) {
    const bool called = by_name && i > 1 && calls_by_name(f.lines[i - 2], f.paths[j - 1]);
    return fits(f.lines[i - 1], files[j - 1]) + (called ? 1 : 0);
  };
  // best[i][j]: of the first i lines and j modules; the first line is the first module's.
  std::vector<std::vector<Best>> best(n + 1, std::vector<Best>(m + 1));
  best[0][0] = {0, 1};
  const auto take = [](Best& to, const Best& from, int more) {
    if (from.score < 0 || from.score + more < to.score) return;
    to = {from.score + more, std::min(2, from.ways + (from.score + more == to.score ? to.ways : 0))};
  };
  for (std::size_t i = 1; i <= n; ++i)
    for (std::size_t j = 0; j <= std::min(i, m); ++j) {
      if (i > 1) take(best[i][j], best[i - 1][j], 0);
      if (j > 0) take(best[i][j], best[i - 1][j - 1], score(i, j));
    }
  if (best[n][m].ways != 1) return {};
  std::vector<std::size_t> alone;
  for (std::size_t i = n, j = m; i > 0; --i) {
    const bool module =
        j > 0 && best[i - 1][j - 1].score >= 0 && best[i - 1][j - 1].score + score(i, j) == best[i][j].score;
    if (module)
      --j;
    else
      alone.push_back(i - 1);
  }
  return {alone.rbegin(), alone.rend()};
}

/// Frames of no known module, where the files tell which they are.
void put_in_alone(CallFrames& f) {
  for (const std::size_t i : lines_alone(f)) {
    const std::vector<std::string> called = called_modules(f.paths[i - 1], f.lines[i - 1]);
    const bool method = is_method(f, i, called);
    std::string path = method               ? std::string(parent_of(called[0]))
                       : called.size() == 1 ? called[0]
                       : i < f.paths.size() ? std::string(parent_of(f.paths[i]))
                                            : std::string();
    if (!method && may_be_function(f.lines[i])) f.application = f.lines[i - 1];
    put_in(f, i, std::move(path), called.size() == 1 ? std::string_view() : frame_alone);
  }
}

/// A frame without a module for line `i`.
void put_in_frame(CallFrames& f, std::size_t i) {
  std::string path = i < f.paths.size() ? std::string(parent_of(f.paths[i])) : std::string();
  put_in(f, std::min(i, f.paths.size()), std::move(path), frame_alone);
}

/// The line at which a module of PyTorch's own stands while it computes.
std::string_view line_of_torch(std::string_view module_class) {
  if (module_class.ends_with(".Sequential")) return "input = module(input)";
  if (module_class.ends_with(".MultiheadAttention"))
    return "attn_output, attn_output_weights = F.multi_head_attention_forward(";
  return "return F.forward(input)";
}

}  // namespace

bool without_module(std::string_view module_class) { return module_class == frame_alone; }

CallFrames call_frames(std::vector<std::string> paths, std::vector<std::string> classes,
                       std::vector<std::string> lines) {
  classes.resize(paths.size());
  CallFrames f{std::move(paths), std::move(classes), std::move(lines), {}};
  if (f.lines.size() > f.paths.size()) {
    std::vector<std::string> fewer;
    for (std::size_t i = 0; i < f.lines.size(); ++i)
      if (i == 0 || !calls_base_class(f.lines[i - 1])) fewer.push_back(f.lines[i]);
    f.lines = std::move(fewer);
  }
  if (f.paths.empty() || f.lines.size() <= f.paths.size()) return f;
  const bool handed = std::ranges::any_of(f.lines, hands_forward);
  if (handed)  // where the files and names tell which frames a forward was handed to
    for (const std::size_t i : lines_alone(f, true)) put_in_frame(f, i);
  if (!handed && std::ranges::none_of(f.lines, calls_forward)) {
    put_in_alone(f);
    if (f.lines.size() > f.paths.size()) put_in_made(f);
  }
  const auto more = f.lines.size() > f.paths.size() ? f.lines.size() - f.paths.size() : 0;
  if (more > 0 && more == static_cast<std::size_t>(std::count_if(f.lines.begin(), f.lines.end() - 1, calls_forward)))
    for (std::size_t i = 1; i < f.lines.size(); ++i)
      if (calls_forward(f.lines[i - 1])) put_in_frame(f, i);
  const std::size_t next = f.paths.size();
  if (!handed && f.lines.size() > next && may_be_function(f.lines[next]) &&
      std::ranges::none_of(f.lines, is_of_checkpoint) &&
      !is_method(f, next, called_modules(f.paths.back(), f.lines[next - 1])))
    f.application = f.lines[next - 1];
  return f;
}

template <class Text>
std::vector<std::string> with_frames_of_torch(std::size_t modules, const std::vector<Text>& classes,
                                              const std::vector<std::string>& lines) {
  std::vector<std::string> all;
  std::size_t next = 0;
  for (std::size_t i = 0; i < std::min(modules, classes.size()); ++i) {
    const std::string_view name = classes[i];
    const std::string file = name.starts_with("torch.nn.modules.") ? file_of_class(name) : std::string();
    if (next < lines.size() && (file.empty() || file_of(lines[next]) == file))
      all.push_back(lines[next++]);
    else if (!file.empty())
      all.push_back(fmt::format("{}:0 {}", file, line_of_torch(name)));
  }
  return next == lines.size() && all.size() == modules ? all : lines;
}

template std::vector<std::string> with_frames_of_torch(std::size_t, const std::vector<std::string_view>&,
                                                       const std::vector<std::string>&);
template std::vector<std::string> with_frames_of_torch(std::size_t, const std::vector<std::string>&,
                                                       const std::vector<std::string>&);

}  // namespace memplan::onnx_format
