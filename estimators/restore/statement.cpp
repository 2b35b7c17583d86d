#include "estimators/restore/statement.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <iterator>
#include <string>
#include <unordered_map>

#include "estimators/base/text.h"

namespace memplan {

namespace {

bool is_name(std::string_view s) {
  if (s.empty() || std::isdigit(static_cast<unsigned char>(s.front()))) return false;
  for (char c : s)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') return false;
  return true;
}

/// A line of a call that is written over several: "index=ids.repeat(1, 1, n)," or "x, dim=1, index=ids)". Its `=` name
/// arguments.
bool is_inside_of_a_call(std::string_view s) {
  int depth = 0;
  char quote = 0;
  for (char c : s) {
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      break;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth;
    } else if (c == ')' || c == ']' || c == '}') {
      if (--depth < 0) return true;
    }
  }
  return !s.empty() && s.back() == ',';
}

/// What no assignment has on its left: a literal.
bool is_literal(std::string_view s) {
  return !s.empty() && (std::isdigit(static_cast<unsigned char>(s.front())) || s.front() == '"' || s.front() == '\'' ||
                        s == "None" || s == "True" || s == "False");
}

/// "reverse(x, n), flip" of a line inside of a call, "reverse(x, n), flip=True": nothing is assigned to what a call
/// gives.
bool has_call(std::string_view left) {
  int depth = 0;
  bool calls = false;  // the outermost bracket that is open is that of a call
  for (std::size_t i = 0; i < left.size(); ++i) {
    const char c = left[i];
    if (c == '(' || c == '[') {
      if (depth++ == 0) calls = c == '(' && i > 0 && in_name(left[i - 1]);
    } else if (c == ')' || c == ']') {
      const auto next = left.find_first_not_of(' ', i + 1);
      if (--depth == 0 && calls && (next == left.npos || left[next] == ',')) return true;
    }
  }
  return false;
}

/// Position of the first `=` outside brackets and strings that assigns, or npos.
std::size_t find_assignment(std::string_view s) {
  int depth = 0;
  char quote = 0;
  for (std::size_t i = 0; i < s.size(); ++i) {
    const char c = s[i];
    if (quote) {
      if (c == quote) quote = 0;
      continue;
    }
    if (c == '"' || c == '\'')
      quote = c;
    else if (c == '(' || c == '[' || c == '{')
      ++depth;
    else if (c == ')' || c == ']' || c == '}')
      --depth;
    else if (c == '#')
      return std::string_view::npos;
    else if (c == '=' && depth == 0) {
      if (i + 1 < s.size() && s[i + 1] == '=') return std::string_view::npos;
      if (i > 0 && (s[i - 1] == '<' || s[i - 1] == '>' || s[i - 1] == '!' || s[i - 1] == ':'))
        return std::string_view::npos;
      return i;
    }
  }
  return std::string_view::npos;
}

Statement parsed(std::string_view source) {
  Statement out;
  const std::size_t space = source.find(' ');
  std::string_view text = space == std::string_view::npos ? std::string_view{} : trim(source.substr(space + 1), " \t");
  out.value = text;
  const std::string_view whole = text;
  if (is_inside_of_a_call(text)) return out;
  while (true) {
    const std::size_t at = find_assignment(text);
    if (at == std::string_view::npos) break;
    std::string_view left = text.substr(0, at);
    if (!left.empty() && (left.back() == '+' || left.back() == '-' || left.back() == '*' || left.back() == '/')) {
      out.augmented = left.back();
      left.remove_suffix(1);
      if (!left.empty() && (left.back() == '*' || left.back() == '/')) {  // **= and //=
        out.augmented = 0;
        left.remove_suffix(1);
      }
    }
    left = trim(left, " \t");
    if (has_call(left)) return {{}, 0, whole};
    if (!left.empty() && left.front() == '(' && left.back() == ')') left = left.substr(1, left.size() - 2);
    std::vector<std::string_view> names;
    for (std::string_view name : arguments_at(left, 0)) {
      name = trim(name, " \t");
      if (const std::size_t colon = name.find(':'); colon != std::string_view::npos)
        name = trim(name.substr(0, colon), " \t");  // x: Tensor = …
      if (!name.empty() && name.front() == '*') name.remove_prefix(1);
      if (is_literal(name)) return {{}, 0, whole};
      if (is_name(name)) names.push_back(name);
    }
    if (!names.empty()) out.targets.push_back(std::move(names));
    text = trim(text.substr(at + 1), " \t");
    out.value = text;
    if (out.augmented) break;
  }
  return out;
}

bool is_keyword(std::string_view word) {
  static constexpr std::string_view words[] = {"return", "if",     "else",  "for",   "in",   "is",   "not",   "and",
                                               "or",     "lambda", "yield", "await", "None", "True", "False", "self"};
  return std::ranges::find(words, word) != std::end(words);
}

/// "torch" of "torch.cat(", "Mish" of "Mish.apply(".
bool is_module_or_class(std::string_view word) {
  return std::isupper(static_cast<unsigned char>(word.front())) != 0 || word == "torch" || word == "nn" ||
         word == "functional" || word == "math" || word == "np";
}

/// Behind the index of `self.stages[s](x)`, which is the number of a module and no tensor; 0 for all other brackets.
std::size_t end_of_module_index(std::string_view value, std::size_t open) {
  std::size_t first = open;
  while (first > 0 && (in_name(value[first - 1]) || value[first - 1] == '.')) --first;
  if (!value.substr(first, open - first).starts_with("self.")) return 0;
  const auto close = value.find_first_of("[]", open + 1);
  return close != value.npos && value[close] == ']' && value.substr(close + 1).starts_with('(') ? close + 1 : 0;
}

std::vector<std::string_view> names_in(std::string_view value, bool owners) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at < value.size();) {
    std::size_t end = at;
    while (end < value.size() && in_name(value[end])) ++end;
    if (end == at) {
      const std::size_t call = value[at] == '[' ? end_of_module_index(value, at) : 0;
      at = std::max(call, at + 1);
      continue;
    }
    const char before = at == 0 ? ' ' : value[at - 1], after = end == value.size() ? ' ' : value[end];
    const std::string_view name = value.substr(at, end - at);
    const bool owner = after == '.' && (!owners || is_module_or_class(name));
    if (before != '.' && !owner && after != '(' && after != '=' && !is_keyword(name) &&
        std::isdigit(static_cast<unsigned char>(name.front())) == 0)
      out.push_back(name);
    at = end;
  }
  return out;
}

std::string_view moved(std::string_view part, const char* from, const char* to) {
  return part.data() ? std::string_view(to + (part.data() - from), part.size()) : part;
}

/// A layer's lines come again in every layer and every pass, so what was made of a text is kept, as views into a text
/// of its own.
template <class T>
class Remembered {
 public:
  template <class Make>
  T of(std::string_view text, const Make& make) {
    if (text.size() > longest) return make(text);
    auto it = known_.find(text);
    if (it == known_.end()) {
      if (known_.size() >= most) known_.clear();
      it = known_.emplace(std::string(text), T{}).first;
      it->second = make(it->first);
    }
    return in(it->second, it->first.data(), text.data());
  }

 private:
  static constexpr std::size_t longest = 1000, most = 2000;

  static std::vector<std::string_view> in(const std::vector<std::string_view>& parts, const char* from,
                                          const char* to) {
    std::vector<std::string_view> out;
    out.reserve(parts.size());
    for (const std::string_view part : parts) out.push_back(moved(part, from, to));
    return out;
  }
  static Statement in(const Statement& s, const char* from, const char* to) {
    Statement out{{}, s.augmented, moved(s.value, from, to)};
    out.targets.reserve(s.targets.size());
    for (const auto& targets : s.targets) out.targets.push_back(in(targets, from, to));
    return out;
  }

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::unordered_map<std::string, T, Hash, std::equal_to<>> known_;
};

}  // namespace

std::size_t closing_bracket(std::string_view text, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (depth == 0) return i;
  }
  return text.npos;
}

PlacedLine placed_line(std::string_view source) {
  PlacedLine out;
  const auto blank = source.find(' '), colon = source.rfind(':', blank);
  if (blank == source.npos || colon == source.npos) return out;
  std::from_chars(source.data() + colon + 1, source.data() + blank, out.number);
  out.file = source.substr(0, colon);
  out.text = source.substr(blank + 1);
  return out;
}

Statement parse_statement(std::string_view source) {
  thread_local Remembered<Statement> statements;
  return statements.of(source, parsed);
}

std::vector<std::string_view> names_read(std::string_view value, bool owners) {
  thread_local Remembered<std::vector<std::string_view>> with_owners, without;
  return (owners ? with_owners : without).of(value, [&](std::string_view text) { return names_in(text, owners); });
}

std::vector<std::string_view> arguments_at(std::string_view line, std::size_t at) {
  std::vector<std::string_view> found;
  int depth = 0;
  std::size_t begin = at;
  const auto add = [&](std::size_t end) {
    std::string_view text = line.substr(begin, end - begin);
    while (text.starts_with(' ')) text.remove_prefix(1);
    found.push_back(text);
    begin = end + 1;
  };
  for (std::size_t i = at; i < line.size(); ++i) {
    const char c = line[i];
    if (c == ',' && depth == 0) add(i);
    depth += c == '(' || c == '[' || c == '{';
    if (c != ')' && c != ']' && c != '}') continue;
    if (depth-- > 0) continue;
    add(i);
    return found;
  }
  add(line.size());
  return found;
}

}  // namespace memplan
