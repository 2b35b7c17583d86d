#include "estimators/frontends/torch_export/expression.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <vector>

namespace memplan::torch_export {

namespace {

constexpr int max_depth = 64;

class Converter {
 public:
  explicit Converter(std::string_view text) : text_(text) {}

  std::optional<std::string> whole() {
    auto out = term(0);
    return out && at_ == text_.size() ? out : std::nullopt;
  }

 private:
  void spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string_view word() {
    spaces();
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' || text_[at_] == '.'))
      ++at_;
    return text_.substr(begin, at_ - begin);
  }

  /// f(a, b, key=value): keywords are assumptions about a symbol and skipped.
  std::optional<std::string> term(int depth) {
    if (depth > max_depth) return std::nullopt;
    spaces();
    if (at_ < text_.size() && text_[at_] == '\'') {
      const std::size_t end = text_.find('\'', at_ + 1);
      if (end == std::string_view::npos) return std::nullopt;
      std::string name(text_.substr(at_ + 1, end - at_ - 1));
      at_ = end + 1;
      return name;
    }
    const bool negative = take('-');
    const std::string_view name = word();
    if (name.empty()) return std::nullopt;
    if (!take('(')) {
      std::string leaf;
      if (negative) leaf.push_back('-');
      return leaf.append(name);
    }
    std::vector<std::string> args;
    while (!take(')')) {
      const std::size_t before = at_;
      const std::string_view key = word();
      if (!key.empty() && take('=')) {
        word();
      } else {
        at_ = before;
        auto arg = term(depth + 1);
        if (!arg) return std::nullopt;
        args.push_back(std::move(*arg));
      }
      take(',');
      if (at_ >= text_.size()) return std::nullopt;
    }
    return apply(name.substr(name.rfind('.') == std::string_view::npos ? 0 : name.rfind('.') + 1), args);
  }

  static std::string join(const std::vector<std::string>& args, std::string_view by) {
    std::string out = "(";
    for (std::size_t i = 0; i < args.size(); ++i) out.append(i ? by : "").append(args[i]);
    return out + ")";
  }

  static std::optional<std::string> apply(std::string_view f, const std::vector<std::string>& args) {
    if (args.empty()) return std::nullopt;
    if (args.size() == 1 && (f == "Integer" || f == "Symbol" || f == "Float" || f == "Identity" || f == "ToFloat"))
      return args[0].starts_with('-') ? join(args, "") : args[0];
    if (f == "Add") return join(args, "+");
    if (f == "Mul") return join(args, "*");
    if (f == "Max" || f == "Min") return std::string(f) + join(args, ",");
    if (args.size() == 1) {
      if (f == "floor" || f == "FloorToInt" || f == "TruncToInt" || f == "TruncToFloat")
        return "floor(" + args[0] + ")";
      if (f == "ceiling" || f == "CeilToInt") return "ceil(" + args[0] + ")";
      return std::nullopt;
    }
    if (args.size() == 2) {
      if (f == "Pow" || f == "PowByNatural" || f == "FloatPow") return join(args, "**");
      if (f == "FloorDiv") return "floor(" + args[0] + "/" + args[1] + ")";
      if (f == "CeilDiv") return "ceil(" + args[0] + "/" + args[1] + ")";
      if (f == "CleanDiv" || f == "IntTrueDiv" || f == "FloatTrueDiv" || f == "Rational") return join(args, "/");
      if (f == "Mod" || f == "PythonMod") return join(args, "%");
    }
    if (args.size() == 3 && f == "ModularIndexing") return "(floor(" + args[0] + "/" + args[1] + ")%" + args[2] + ")";
    return std::nullopt;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string infix(std::string_view text) {
  static constexpr std::string_view heads[] = {"Symbol(", "Integer(", "Mul(", "Add(", "Pow(", "Rational("};
  const bool srepr = std::any_of(std::begin(heads), std::end(heads),
                                 [&](std::string_view h) { return text.find(h) != std::string_view::npos; });
  if (!srepr) return std::string(text);
  return Converter(text).whole().value_or(std::string());
}

}  // namespace memplan::torch_export
