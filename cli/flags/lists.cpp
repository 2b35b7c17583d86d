#include "cli/flags/lists.h"

#include <fmt/format.h>

#include "cli/flags/values.h"

namespace memplan::cli {

namespace {

constexpr std::size_t longest = 10'000;

void expand_range(std::string_view word, std::size_t dots, std::string_view flag, std::vector<std::string>& out) {
  const std::size_t colon = word.find(':', dots);
  const std::int64_t first = parse_count(word.substr(0, dots), flag),
                     last = parse_count(
                         word.substr(dots + 2, colon == std::string_view::npos ? colon : colon - dots - 2), flag);
  const std::string_view step = colon == std::string_view::npos ? "x2" : word.substr(colon + 1);
  if (step.size() < 2 || (step[0] != '+' && step[0] != 'x'))
    fail(ErrorKind::usage, fmt::format("'{}' is no step of a range", step), std::string(flag),
         "write 1..64, 512..2048:+512 or 1..81:x3");
  const std::int64_t by = parse_count(step.substr(1), flag, step[0] == 'x' ? 2 : 1);
  if (last < first)
    fail(ErrorKind::usage, fmt::format("the range {} ends before it begins", word), std::string(flag),
         fmt::format("write {}..{}", last, first));
  for (std::int64_t n = first; n <= last; n = step[0] == '+' ? n + by : n * by) {
    if (out.size() >= longest)
      fail(ErrorKind::usage, fmt::format("more than {} values", longest), std::string(flag), "give a wider step");
    out.push_back(std::to_string(n));
    if (n > INT64_MAX / by - by) break;
  }
}

}  // namespace

std::vector<std::string> expand_list(std::string_view text, std::string_view flag) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::size_t dots = word.find("..");
    if (dots != std::string_view::npos && dots > 0)
      expand_range(word, dots, flag, out);
    else if (!word.empty())
      out.emplace_back(word);
    begin = end + 1;
  }
  if (out.empty()) fail(ErrorKind::usage, "the list is empty", std::string(flag), "give values separated by commas");
  return out;
}

}  // namespace memplan::cli
