#include "memplan_torch/script_lines.h"

#include <filesystem>
#include <fstream>

namespace memplan::torch_side {

namespace {

/// Longer files are not Python that somebody wrote.
constexpr std::uintmax_t longest_file = 8 << 20;

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string::npos ? std::string() : text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

/// What comes before "site-packages/" or Debian's "dist-packages/", or all but the last two parts, means nothing on
/// another machine.
std::string short_path(const std::string& path) {
  for (const char* packages : {"site-packages/", "dist-packages/"})  // the latter: Debian's
    if (const auto at = path.rfind(packages); at != std::string::npos) return path.substr(at + 14);
  const auto last = path.rfind('/');
  const auto before = last == std::string::npos || last == 0 ? std::string::npos : path.rfind('/', last - 1);
  return before == std::string::npos ? path : path.substr(before + 1);
}

std::string entry(const std::string& path, std::size_t number, const std::string& text) {
  return short_path(path) + ":" + std::to_string(number) + (text.empty() ? "" : " " + text);
}

std::optional<torch::jit::SourceRange> original(const torch::jit::Node& node) {
  const torch::jit::SourceRange range = node.sourceRange();
  if (!range.source()) return std::nullopt;
  if (auto found = range.findSourceRangeThatGenerated(); found && found->source()) return found;
  return std::nullopt;
}

/// A trace has the stack of its Python program in place of the program's text: "/…/resnet.py(268): _forward_impl".
bool is_stack(const torch::jit::SourceRange& range) {
  const std::string first = range.source()->get_line(0).str();
  const auto close = first.rfind("): "), open = close == std::string::npos ? close : first.rfind('(', close);
  return open != std::string::npos && open + 1 < close && first.find_first_not_of("0123456789", open + 1) == close;
}

}  // namespace

const std::string& ScriptLines::python_line(const std::string& path, std::size_t number) {
  static const std::string none;
  const auto [it, fresh] = files_.try_emplace(path);
  std::error_code ec;
  if (fresh && path.size() > 3 && path.compare(path.size() - 3, 3, ".py") == 0 &&
      std::filesystem::is_regular_file(path, ec) && std::filesystem::file_size(path, ec) <= longest_file) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) it->second.push_back(trimmed(line));
  }
  return number >= 1 && number <= it->second.size() ? it->second[number - 1] : none;
}

std::string ScriptLines::line(const torch::jit::Node& node) {
  const auto range = original(node);
  if (!range) return {};
  const auto where = range->file_line_col();
  if (!where || std::get<0>(*where).empty() || is_stack(*range)) return {};
  const auto& source = *range->source();
  return entry(std::get<0>(*where), std::get<1>(*where),
               trimmed(source.get_line(source.lineno_for_offset(range->start())).str()));
}

std::vector<std::string> ScriptLines::frames(const torch::jit::Node& node) {
  const auto range = original(node);
  if (!range || !is_stack(*range)) return {};
  // Innermost first.
  const std::string text = range->source()->text_str().str();
  const auto [it, fresh] = traces_.try_emplace(text);
  if (!fresh) return it->second;
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string one = text.substr(at, end - at);
    at = end + 1;
    const auto close = one.rfind("): "), open = close == std::string::npos ? close : one.rfind('(', close);
    if (open == std::string::npos || one.substr(close + 3) != "forward") continue;
    const std::size_t number = std::strtoul(one.c_str() + open + 1, nullptr, 10);
    const std::string path = one.substr(0, open);
    out.insert(out.begin(), entry(path, number, python_line(path, number)));
  }
  return it->second = std::move(out);
}

}  // namespace memplan::torch_side
