#include "estimators/runtime/torch/aten/formula.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "estimators/runtime/torch/aten/formula_functions.h"

namespace memplan {

enum class Kind : std::uint8_t { number, name, call, method, operation, negative, choice, list, assign };

struct Formula::Node {
  Kind kind;
  std::string text;  ///< name, function or operator
  double number = 0;
  bool integral = false;
  std::vector<std::unique_ptr<Node>> parts;  ///< operands; of a method the object first
};

namespace {

using Expr = std::unique_ptr<Formula::Node>;

class Parser {
 public:
  explicit Parser(std::string_view text) : all_(text), rest_(text) {}

  std::vector<Expr> statements() {
    std::vector<Expr> out;
    do out.push_back(statement());
    while (take(";"));
    if (peek() != '\0') bad("unexpected text");
    return out;
  }

 private:
  [[noreturn]] void bad(const char* why) {
    fail(ErrorKind::internal,
         std::string("formula '") + std::string(all_) + "': " + why + " at '" + std::string(rest_) + "'");
  }

  char peek() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
    return rest_.empty() ? '\0' : rest_.front();
  }
  bool take(std::string_view token) {
    peek();
    if (rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void need(std::string_view token) {
    if (!take(token)) bad("something is missing");
  }
  static Expr make(Kind kind, std::string text = {}) {
    auto e = std::make_unique<Formula::Node>();
    e->kind = kind;
    e->text = std::move(text);
    return e;
  }
  static Expr operation(std::string text, Expr a, Expr b) {
    Expr e = make(Kind::operation, std::move(text));
    e->parts.push_back(std::move(a));
    e->parts.push_back(std::move(b));
    return e;
  }

  std::string identifier() {
    std::size_t n = 0;
    while (n < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[n])) || rest_[n] == '_')) ++n;
    std::string name(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return name;
  }

  Expr statement() {
    peek();
    const std::string_view before = rest_;
    if (std::isalpha(static_cast<unsigned char>(peek()))) {
      std::string name = identifier();
      if (peek() == '=' && rest_.substr(0, 2) != "==") {
        rest_.remove_prefix(1);
        Expr e = make(Kind::assign, std::move(name));
        e->parts.push_back(expression());
        return e;
      }
      rest_ = before;
    }
    return expression();
  }

  Expr expression() {
    Expr e = conjunction();
    if (!take("?")) return e;
    Expr choice = make(Kind::choice);
    choice->parts.push_back(std::move(e));
    choice->parts.push_back(expression());
    need(":");
    choice->parts.push_back(expression());
    return choice;
  }
  Expr conjunction() {
    Expr e = comparison();
    while (take("&")) e = operation("&", std::move(e), comparison());
    return e;
  }
  Expr comparison() {
    Expr e = sum();
    for (const char* op : {"==", "!=", "<=", ">=", "<", ">"})
      if (take(op)) return operation(op, std::move(e), sum());
    return e;
  }
  Expr sum() {
    Expr e = product();
    for (;;) {
      if (take("+"))
        e = operation("+", std::move(e), product());
      else if (take("-"))
        e = operation("-", std::move(e), product());
      else
        return e;
    }
  }
  Expr product() {
    Expr e = unary();
    for (;;) {
      if (take("*"))
        e = operation("*", std::move(e), unary());
      else if (take("/"))
        e = operation("/", std::move(e), unary());
      else
        return e;
    }
  }
  Expr unary() {
    if (!take("-")) return postfix();
    Expr e = make(Kind::negative);
    e->parts.push_back(unary());
    return e;
  }
  Expr postfix() {
    Expr e = primary();
    while (take(".")) {
      Expr m = make(Kind::method, identifier());
      m->parts.push_back(std::move(e));
      need("(");
      arguments(*m, ")");
      e = std::move(m);
    }
    return e;
  }
  void arguments(Formula::Node& call, std::string_view end) {
    if (take(end)) return;
    do call.parts.push_back(expression());
    while (take(","));
    need(end);
  }
  Expr primary() {
    const char c = peek();
    if (c == '(') {
      rest_.remove_prefix(1);
      Expr e = expression();
      need(")");
      return e;
    }
    if (c == '{') {
      rest_.remove_prefix(1);
      Expr e = make(Kind::list);
      arguments(*e, "}");
      return e;
    }
    if (std::isdigit(static_cast<unsigned char>(c))) {
      Expr e = make(Kind::number);
      std::size_t n = 0;
      while (n < rest_.size() && (std::isdigit(static_cast<unsigned char>(rest_[n])) || rest_[n] == '.')) ++n;
      const std::string digits(rest_.substr(0, n));
      rest_.remove_prefix(n);
      e->number = std::strtod(digits.c_str(), nullptr);
      e->integral = digits.find('.') == std::string::npos;
      return e;
    }
    if (!std::isalpha(static_cast<unsigned char>(c)) && c != '_') bad("an operand is missing");
    std::string name = identifier();
    if (!take("(")) return make(Kind::name, std::move(name));
    Expr e = make(Kind::call, std::move(name));
    arguments(*e, ")");
    return e;
  }

  std::string_view all_, rest_;
};

void collect_names(const Formula::Node& e, std::vector<std::string>& read, std::vector<std::string>& defined) {
  auto has = [](const std::vector<std::string>& list, const std::string& s) {
    return std::find(list.begin(), list.end(), s) != list.end();
  };
  for (const Expr& p : e.parts) collect_names(*p, read, defined);
  if (e.kind == Kind::name && e.text != "none" && e.text != "true_" && !has(defined, e.text) && !has(read, e.text))
    read.push_back(e.text);
  if (e.kind == Kind::assign) defined.push_back(e.text);
}

/// One statement's evaluation: its temporaries, in the order of their making.
struct Evaluation {
  Run& run;
  Bindings& bindings;
  std::vector<Tensor> temporaries;

  ~Evaluation() {
    while (!temporaries.empty()) temporaries.pop_back();
  }

  Value hold(Value v) {
    if (v.is_tensor()) temporaries.push_back(v.tensor());
    return v;
  }

  Value value(const Formula::Node& e) {
    switch (e.kind) {
      case Kind::number:
        if (e.integral) return static_cast<std::int64_t>(e.number);
        return e.number;
      case Kind::name:
        if (e.text == "none") return {};
        if (e.text == "true_") return true;
        if (const Value* v = bindings.find(e.text)) return *v;
        fail(ErrorKind::internal, "a formula reads '" + e.text + "', which is not bound");
      case Kind::negative:
        return hold(formula_negative(run, value(*e.parts[0])));
      case Kind::choice:
        return value(to_bool(value(*e.parts[0]), "a formula's condition") ? *e.parts[1] : *e.parts[2]);
      case Kind::list: {
        ValueList list;  // a braced list is evaluated left to right
        for (const Expr& p : e.parts) list.push_back(value(*p));
        return list;
      }
      case Kind::operation: {
        Value b = value(*e.parts[1]);
        Value a = value(*e.parts[0]);
        return hold(formula_operation(run, e.text, a, b));
      }
      case Kind::call:
      case Kind::method: {
        ValueList args(e.parts.size());
        const std::size_t first = e.kind == Kind::method ? 1 : 0;
        if (first) args[0] = value(*e.parts[0]);
        for (std::size_t i = e.parts.size(); i-- > first;) args[i] = value(*e.parts[i]);
        return hold(formula_call(run, e.text, args));
      }
      case Kind::assign:
        break;
    }
    fail(ErrorKind::internal, "a formula assigns inside an expression");
  }
};

}  // namespace

void Bindings::set(std::string_view name, Value value) {
  for (auto& [n, v] : entries_)
    if (n == name) {
      v = std::move(value);
      return;
    }
  entries_.emplace_back(name, std::move(value));
}

const Value* Bindings::find(std::string_view name) const {
  for (const auto& [n, v] : entries_)
    if (n == name) return &v;
  return nullptr;
}

void Bindings::erase(std::string_view name) {
  std::erase_if(entries_, [&](const auto& entry) { return entry.first == name; });
}

Formula::Formula(std::string_view text) : statements_(Parser(text).statements()) {
  std::vector<std::string> defined;
  for (const Expr& e : statements_) collect_names(*e, names_, defined);
  std::sort(names_.begin(), names_.end());
}
Formula::~Formula() = default;
Formula::Formula(Formula&&) noexcept = default;
Formula& Formula::operator=(Formula&&) noexcept = default;

ValueList Formula::evaluate(Run& run, Bindings& bindings, const std::function<bool(int)>& wanted) const {
  std::vector<std::string_view> locals;
  ValueList out;
  for (std::size_t i = 0; i < statements_.size(); ++i) {
    const Node& e = *statements_[i];
    Evaluation evaluation{run, bindings, {}};
    if (e.kind == Kind::assign) {
      Value v = evaluation.value(*e.parts[0]);
      if (v.is_tensor() && !v.tensor()) v = Value();
      if (!bindings.find(e.text)) locals.push_back(e.text);
      bindings.set(e.text, std::move(v));
    } else if (i + 1 == statements_.size() && e.kind == Kind::list) {
      for (std::size_t k = 0; k < e.parts.size(); ++k)
        out.push_back(wanted(static_cast<int>(k)) ? evaluation.value(*e.parts[k]) : Value());
    } else {
      Value v = evaluation.value(e);
      if (i + 1 == statements_.size()) out.push_back(std::move(v));
    }
  }
  while (!locals.empty()) {
    bindings.erase(locals.back());
    locals.pop_back();
  }
  return out;
}

}  // namespace memplan
