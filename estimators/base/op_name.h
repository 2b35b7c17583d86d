// Names of ops, interned: a name is kept once, and two names are compared by their address.
#pragma once

#include <cstddef>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>

namespace memplan {

/// "aten::linear", "aten::add.Tensor". Copies cost nothing; making one from text looks it up among the names known so
/// far (thread-safe; a name stays until the program ends, and names are bounded by what files may contain).
class OpName {
 public:
  OpName();  ///< the empty name
  OpName(std::string_view name);
  OpName(const std::string& name) : OpName(std::string_view(name)) {}
  OpName(const char* name) : OpName(std::string_view(name)) {}

  const std::string& str() const { return *name_; }
  operator const std::string&() const { return *name_; }
  bool empty() const { return name_->empty(); }
  bool starts_with(std::string_view prefix) const { return name_->starts_with(prefix); }
  bool ends_with(std::string_view suffix) const { return name_->ends_with(suffix); }
  std::size_t find(std::string_view what) const { return name_->find(what); }
  std::size_t find(char what) const { return name_->find(what); }
  std::string substr(std::size_t at, std::size_t count = std::string::npos) const { return name_->substr(at, count); }

  friend bool operator==(OpName a, OpName b) { return a.name_ == b.name_; }
  friend bool operator<(OpName a, OpName b) { return a.name_ != b.name_ && *a.name_ < *b.name_; }
  friend std::ostream& operator<<(std::ostream& out, OpName name) { return out << name.str(); }
  friend std::string operator+(const std::string& a, OpName b) { return a + b.str(); }
  friend std::string operator+(OpName a, const std::string& b) { return a.str() + b; }

 private:
  friend struct std::hash<OpName>;
  const std::string* name_;
};

/// The characters of a literal, as a template's argument.
template <std::size_t N>
struct OpLiteral {
  char text[N]{};
  constexpr OpLiteral(const char (&given)[N]) {
    for (std::size_t i = 0; i < N; ++i) text[i] = given[i];
  }
};

/// "aten::linear"_op is looked up once in the life of the program, so `call.op == "aten::linear"_op` compares
/// addresses.
template <OpLiteral literal>
OpName operator""_op() {
  static const OpName name{std::string_view(literal.text, sizeof literal.text - 1)};
  return name;
}

}  // namespace memplan

template <>
struct std::hash<memplan::OpName> {
  std::size_t operator()(memplan::OpName name) const noexcept { return std::hash<const void*>{}(name.name_); }
};
