#include "estimators/frontends/onnx/fx_text.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace memplan::onnx_format {

namespace {

constexpr int max_depth = 32;

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

class Parser {
 public:
  Parser(std::string_view text, const Intern& intern) : text_(text), intern_(intern) {}

  std::size_t at = 0;

  bool skip(std::string_view expected) {
    if (text_.substr(at, expected.size()) != expected) return false;
    at += expected.size();
    return true;
  }

  void spaces() {
    while (at < text_.size() && text_[at] == ' ') ++at;
  }

  std::string_view word() {
    const std::size_t begin = at;
    while (at < text_.size() && is_word(text_[at])) ++at;
    return text_.substr(begin, at - begin);
  }

  /// Items up to `close`, which is consumed.
  bool items(char close, std::vector<Arg>& out, int depth) {
    if (depth > max_depth) return false;
    for (;;) {
      spaces();
      if (at >= text_.size()) return false;
      if (text_[at] == close) return ++at, true;
      const std::size_t begin = at;
      Arg item;
      const std::size_t before = at;
      if (!value(item, close, depth) || at == before) return false;  // a bracket that nothing opened
      out.push_back(std::move(item));
      spaces();
      if (at < text_.size() && text_[at] == ',') ++at;
      if (at == begin) return false;  // a bracket that closes nothing
    }
  }

  bool value(Arg& out, char close, int depth) {
    const char c = text_[at];
    if (c == '%') {
      ++at;
      out.value = intern_(word());
      return true;
    }
    if (c == '[' || c == '(') {
      ++at;
      Arg::List list;
      if (!items(c == '[' ? ']' : ')', list, depth + 1)) return false;
      out.value = std::move(list);
      return true;
    }
    if (skip("slice(")) {
      Arg::List list;
      if (!items(')', list, depth + 1)) return false;
      out.value = std::move(list);
      return true;
    }
    out.value = scalar(token(close));
    return true;
  }

  /// A bare token: up to a comma or the closing bracket, both outside brackets of its own.
  std::string_view token(char close) {
    const std::size_t begin = at;
    int open = 0;
    for (; at < text_.size(); ++at) {
      const char c = text_[at];
      if (open == 0 && (c == close || c == ',')) break;
      if (c == '(' || c == '[' || c == '{') ++open;
      if (c == ')' || c == ']' || c == '}') --open;
      if (open < 0) break;
    }
    return text_.substr(begin, at - begin);
  }

  static decltype(Arg::value) scalar(std::string_view t) {
    if (t == "None") return Arg::None{};
    if (t == "True") return true;
    if (t == "False") return false;
    if (t == "inf") return std::numeric_limits<double>::infinity();
    if (t == "-inf") return -std::numeric_limits<double>::infinity();
    if (t == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (t.substr(0, 6) == "torch.") {
      t.remove_prefix(6);
      if (auto d = dtype_from_name(t)) return *d;
      return std::string(t);  // "contiguous_format", "strided"
    }
    std::int64_t whole = 0;
    const char* last = t.data() + t.size();
    if (auto r = std::from_chars(t.data(), last, whole); r.ec == std::errc() && r.ptr == last) return whole;
    double real = 0;
    if (auto r = std::from_chars(t.data(), last, real); r.ec == std::errc() && r.ptr == last) return real;
    return std::string(t);
  }

 private:
  std::string_view text_;
  const Intern& intern_;
};

}  // namespace

std::string_view fx_name(std::string_view text) {
  if (text.empty() || text[0] != '%') return {};
  std::size_t end = 1;
  while (end < text.size() && is_word(text[end])) ++end;
  return text.substr(1, end - 1);
}

bool parse_fx(std::string_view text, const Intern& intern, FxText& out) {
  out.name = fx_name(text);
  const std::size_t target = text.find("[target=");
  if (out.name.empty() || target == std::string_view::npos) return false;
  const std::size_t begin = target + 8, end = text.find("](args = (", begin);
  if (end == std::string_view::npos) return false;
  out.target = text.substr(begin, end - begin);
  Parser p(text, intern);
  p.at = end + 10;
  out.args.clear();
  out.kwargs.clear();
  if (out.target == "torch.ops.aten.einsum.default") {
    // The equation is a string with commas in it, printed without quotes; the operands' list follows.
    const std::size_t list = text.find(", [", p.at);
    if (list == std::string_view::npos) return false;
    out.args.push_back({std::string(text.substr(p.at, list - p.at))});
    p.at = list + 2;
  }
  if (!p.items(')', out.args, 0)) return false;
  if (!p.skip(", kwargs = {")) return false;
  for (;;) {
    p.spaces();
    if (p.skip("}")) return true;
    const std::string_view key = p.word();
    if (key.empty() || !p.skip(": ")) return false;
    Arg value;
    if (p.at >= text.size() || !p.value(value, '}', 0)) return false;
    out.kwargs.emplace_back(key, std::move(value));
    p.spaces();
    p.skip(",");
  }
}

std::string op_of_target(std::string_view target) {
  auto starts = [&](std::string_view prefix) { return target.substr(0, prefix.size()) == prefix; };
  if (starts("torch.ops.")) {
    std::string out;
    target.remove_prefix(10);
    const std::size_t dot = target.find('.');
    if (dot == std::string_view::npos) return std::string(target);
    out.append(target.substr(0, dot)).append("::");
    target.remove_prefix(dot + 1);
    if (const std::size_t n = target.rfind(".default"); n != std::string_view::npos && n + 8 == target.size())
      target.remove_suffix(8);
    return out.append(target);
  }
  if (starts("operator.")) return "_" + std::string(target);
  return std::string(target);
}

std::vector<std::string_view> parse_python_strings(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char quote = text[at];
    if (quote != '\'' && quote != '"') continue;
    const std::size_t end = text.find(quote, at + 1);
    if (end == std::string_view::npos) break;
    out.push_back(text.substr(at + 1, end - at - 1));
    at = end;
  }
  return out;
}

}  // namespace memplan::onnx_format
