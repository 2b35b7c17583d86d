// The line of Python where a call stands, taken apart as far as names and in-place operators go.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string_view>
#include <vector>

namespace memplan {

/// What `text` ("out += identity", "q, k = a.chunk(2)") does with names. Empty targets: an expression, a return, or the
/// middle of a longer statement.
struct Statement {
  /// Names (or attributes, "self.x") on the left, one list per `=`: "a = b, c = f()" gives {a}, {b, c}.
  std::vector<std::vector<std::string_view>> targets;
  char augmented = 0;      ///< '+', '-', '*', '/' of an augmented assignment
  std::string_view value;  ///< the right-hand side, or the whole text
};

/// "file.py:12 text", taken apart.
struct PlacedLine {
  std::string_view file, text;
  int number = 0;
};

/// Without file and text where it has no number.
PlacedLine placed_line(std::string_view source);

/// `source` is "file.py:12 text", as in Call::source; the views point into it.
Statement parse_statement(std::string_view source);

/// Names that an expression reads: "residual" and "x" of "self.norm(x) + residual"; with `owners` "k" of "k.mT" as
/// well.
std::vector<std::string_view> names_read(std::string_view value, bool owners = false);

/// A character of a Python name.
inline bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The name that the text begins with; empty where it begins otherwise.
inline std::string_view leading_name(std::string_view text) {
  return text.substr(0, static_cast<std::size_t>(std::ranges::find_if_not(text, in_name) - text.begin()));
}

/// A character of a path of names, "self.attn".
inline bool in_path(char c) { return in_name(c) || c == '.'; }

/// Where the bracket `(` at `open` is closed; npos: in another line, or there is none.
std::size_t closing_bracket(std::string_view text, std::size_t open);

/// Arguments of the call whose opening bracket ends before `at`, as they are written.
std::vector<std::string_view> arguments_at(std::string_view text, std::size_t at);

/// `"full"` of a dict's line `"full": make_mask(x),` stands among names with its quotes.
inline bool is_dict_key(std::string_view name) { return name.starts_with('"') || name.starts_with('\''); }

/// Whether the characters of the text from `at` on are a name, not a part of one.
inline bool is_whole_name(std::string_view text, std::size_t at, std::size_t length) {
  const std::size_t end = at + length;
  return (at == 0 || !in_name(text[at - 1])) && (end >= text.size() || !in_name(text[end]));
}

/// Whether the text has the name somewhere.
inline bool has_name(std::string_view text, std::string_view name) {
  for (auto at = text.find(name); at != text.npos; at = text.find(name, at + 1))
    if (is_whole_name(text, at, name.size())) return true;
  return false;
}

}  // namespace memplan
