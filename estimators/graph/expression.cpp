#include "estimators/graph/expression.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <vector>

namespace memplan {

std::string lower_case(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

namespace {

/// A recursive-descent evaluator over doubles; sizes are far below 2^53.
class Expression {
 public:
  Expression(std::string_view text, const Symbols& symbols) : text_(text), symbols_(symbols) {}

  std::optional<double> value() {
    const auto v = sum(0);
    spaces();
    return v && at_ == text_.size() ? v : std::nullopt;
  }

 private:
  void spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view s) {
    spaces();
    if (text_.substr(at_, s.size()) != s) return false;
    at_ += s.size();
    return true;
  }
  std::optional<double> sum(int depth) {
    auto a = product(depth);
    while (a) {
      const bool plus = take("+");
      if (!plus && !take("-")) break;
      const auto b = product(depth);
      if (!b) return b;
      *a += plus ? *b : -*b;
    }
    return a;
  }
  std::optional<double> product(int depth) {
    auto a = factor(depth);
    while (a) {
      const bool power = take("**"), floor = !power && take("//"), times = !power && !floor && take("*");
      const bool divide = !power && !floor && !times && take("/"),
                 modulo = !power && !floor && !times && !divide && take("%");
      if (!power && !floor && !times && !divide && !modulo) break;
      const auto b = factor(depth);
      if (!b || ((floor || divide || modulo) && *b == 0)) return std::nullopt;
      if (power) *a = std::pow(*a, *b);
      if (times) *a *= *b;
      if (divide) *a /= *b;
      if (floor) *a = std::floor(*a / *b);
      if (modulo) *a -= *b * std::floor(*a / *b);
    }
    return a;
  }
  std::optional<double> factor(int depth) {
    if (depth > 50) return std::nullopt;
    if (take("-")) {
      auto v = factor(depth + 1);
      if (v) *v = -*v;
      return v;
    }
    if (take("(")) {
      auto v = sum(depth + 1);
      return v && take(")") ? v : std::nullopt;
    }
    spaces();
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' || text_[at_] == '.'))
      ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word.empty()) return std::nullopt;
    if (std::isdigit(static_cast<unsigned char>(word[0]))) return number(word);
    if (take("(")) return function(lower_case(word), depth);
    if (auto it = symbols_.find(word); it != symbols_.end()) return static_cast<double>(it->second);
    return std::nullopt;
  }
  /// None where the word is more than a number, and where the number is beyond doubles.
  static std::optional<double> number(std::string_view word) {
    double value = 0;
    const char* last = word.data() + word.size();
    const auto [end, error] = std::from_chars(word.data(), last, value);
    return error == std::errc() && end == last ? std::optional(value) : std::nullopt;
  }
  std::optional<double> function(const std::string& name, int depth) {
    std::vector<double> args;
    do {
      const auto v = sum(depth + 1);
      if (!v) return std::nullopt;
      args.push_back(*v);
    } while (take(","));
    if (!take(")")) return std::nullopt;
    if (name == "floor" || name == "trunc") return std::floor(args[0]);
    if (name == "ceil" || name == "ceiling") return std::ceil(args[0]);
    if (name == "floordiv" && args.size() == 2 && args[1] != 0) return std::floor(args[0] / args[1]);
    if (name == "mod" && args.size() == 2 && args[1] != 0) return args[0] - args[1] * std::floor(args[0] / args[1]);
    if (name == "max") return *std::max_element(args.begin(), args.end());
    if (name == "min") return *std::min_element(args.begin(), args.end());
    return std::nullopt;
  }

  std::string_view text_;
  const Symbols& symbols_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<double> value_of_expression(std::string_view text, const Symbols& symbols) {
  return Expression(text, symbols).value();
}

}  // namespace memplan
