#include "cli/program/python.h"

#include <fmt/format.h>

#include <charconv>

#include "cli/terminal/style.h"

namespace memplan::cli {

namespace {

struct Numbered {
  std::string stem;
  std::int64_t number = -1;  ///< -1: no number at the end, or one that would not be printed the same again
};

Numbered split(const std::string& name) {
  std::size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  const std::string_view text = std::string_view(name).substr(digits);
  std::int64_t number = -1;
  if (!text.empty() && text.size() < 10 && (text.size() == 1 || text[0] != '0'))
    std::from_chars(text.data(), text.data() + text.size(), number);
  return {name.substr(0, digits), number};
}

}  // namespace

std::string python_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : clean(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string python_names(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + python_string(name);
  return out;
}

std::string python_list(const std::vector<std::string>& names, const std::string& indent) {
  std::string out = "[\n";
  for (std::size_t i = 0; i < names.size();) {
    const Numbered first = split(names[i]);
    std::size_t end = i + 1;
    std::int64_t step = 0;
    if (first.number >= 0 && first.stem.find_first_of("{}") == std::string::npos)
      for (std::int64_t last = first.number; end < names.size(); ++end) {
        const Numbered next = split(names[end]);
        if (next.stem != first.stem || next.number <= last || (step && next.number - last != step)) break;
        step = next.number - last;
        last = next.number;
      }
    if (end - i < 3) end = i + 1;
    if (end == i + 1) {
      out += fmt::format("{}{},\n", indent, python_string(names[i]));
    } else {
      const std::string begin = first.number == 0 && step == 1 ? "" : fmt::format("{}, ", first.number);
      out += fmt::format("{}*(f{} for i in range({}{}{})),\n", indent, python_string(first.stem + "{i}"), begin,
                         first.number + static_cast<std::int64_t>(end - i - 1) * step + 1,
                         step == 1 ? "" : fmt::format(", {}", step));
    }
    i = end;
  }
  return out + indent.substr(0, indent.size() - 4) + "]";
}

}  // namespace memplan::cli
