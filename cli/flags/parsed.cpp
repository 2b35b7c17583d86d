#include "cli/flags/parsed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "cli/flags/flags.h"
#include "cli/flags/spelling.h"
#include "cli/flags/values.h"
#include "estimators/base/text.h"

namespace memplan::cli {

std::vector<std::string> split_words(std::string_view text, char separator) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) words.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::int64_t Given::count(std::int64_t least) const { return parse_count(text(), name(), least); }

std::vector<std::string> Given::words(char separator) const {
  std::vector<std::string> words;
  for (const std::string& value : values)
    for (const std::string& word : split_words(value, separator))
      if (const std::string_view trimmed = trim(word); !trimmed.empty()) words.emplace_back(trimmed);
  return words;
}

std::string Given::name() const {
  const std::optional<Field> field = field_of(flag.name);
  return field ? setting(*field) : fmt::format("--{}", flag.name);
}

std::string Given::origin() const {
  const auto it = parsed.origin.find(flag.name);
  return it == parsed.origin.end() ? std::string() : it->second;
}

std::vector<std::string> words_of(const Parsed& parsed, const std::vector<std::string_view>& groups) {
  std::vector<std::string> words;
  for (const Flag& flag : flags()) {
    if (!(flag.commands & in_explain) || std::find(groups.begin(), groups.end(), flag.group) == groups.end()) continue;
    const auto it = parsed.values.find(flag.name);
    if (it == parsed.values.end()) continue;
    for (const std::string& value : it->second) {
      words.push_back(fmt::format("--{}", flag.name));
      if (!flag.value.empty()) words.push_back(value);
    }
  }
  return words;
}

}  // namespace memplan::cli
