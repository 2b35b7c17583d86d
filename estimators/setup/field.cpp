#include "estimators/setup/field.h"

#include <algorithm>

namespace memplan {

namespace {

// ASCII's separators stand in no message and, checked below, in no value.
constexpr char opening = '\x1e', closing = '\x1f';

bool is_separator(char c) { return c == opening || c == closing; }

std::optional<Field> field_called(std::string_view name) {
  for (const FieldName& row : field_names)
    if (row.name == name) return row.field;
  return std::nullopt;
}

}  // namespace

std::string setting(Field field, std::string_view value) {
  std::string mark(1, opening);
  mark += name_of(field);
  if (!value.empty()) mark += '=';
  // Names of a model's parts may be values, and files are not trusted.
  for (const char c : value) mark += is_separator(c) ? '?' : c;
  return mark += closing;
}

std::string spelled(std::string_view message, const Spelling& spelling) {
  std::string out;
  while (true) {
    const std::size_t begin = message.find(opening), end = message.find(closing, begin);
    if (end == std::string_view::npos) return out += message;
    const std::string_view mark = message.substr(begin + 1, end - begin - 1);
    const std::size_t equals = std::min(mark.find('='), mark.size());
    const std::optional<Field> field = field_called(mark.substr(0, equals));
    out += message.substr(0, begin);
    // What is no mark came from a file and keeps its characters.
    out += field ? spelling(*field, mark.substr(std::min(equals + 1, mark.size())))
                 : message.substr(begin, end + 1 - begin);
    message.remove_prefix(end + 1);
  }
}

std::string plainly_spelled(std::string_view message) {
  return spelled(message, [](Field field, std::string_view value) {
    std::string out(name_of(field));
    if (!value.empty()) out.append("=").append(value);
    return out;
  });
}

}  // namespace memplan
