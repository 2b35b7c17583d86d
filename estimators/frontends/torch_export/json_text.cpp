#include "estimators/frontends/torch_export/json_text.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "estimators/base/error.h"

namespace memplan::torch_export {

void tame_json(std::string& text, int depth, const std::string& where) {
  constexpr std::int64_t max_values = 10'000'000;
  std::vector<std::pair<std::size_t, std::size_t>> bare;  // position, length
  int open = 0;
  std::int64_t values = 0;
  const std::string_view t = text;
  for (std::size_t i = 0; i < t.size(); ++i) {
    switch (t[i]) {
      case '"':
        for (++i; i < t.size() && t[i] != '"'; ++i)
          if (t[i] == '\\') ++i;
        break;
      case '[':
      case '{':
        if (++open > depth)
          fail_input(fmt::format("the graph's JSON is nested deeper than {} levels", depth), where,
                     "no exporter writes such a file");
        ++values;
        break;
      case ']':
      case '}':
        --open;
        break;
      case ',':
        ++values;
        break;
      case 'I':
      case 'N': {
        const std::string_view word = t[i] == 'I' ? std::string_view("Infinity") : std::string_view("NaN");
        if (t.substr(i, word.size()) != word) break;
        const bool negative = i > 0 && t[i - 1] == '-';
        bare.emplace_back(i - (negative ? 1 : 0), word.size() + (negative ? 1 : 0));
        i += word.size() - 1;
        break;
      }
      default:
        break;
    }
    if (values > max_values)
      fail_input("the graph's JSON has more than ten million values", where, "no exporter writes such a file");
  }
  if (bare.empty()) return;
  std::string out;
  out.reserve(text.size() + 2 * bare.size());
  std::size_t at = 0;
  for (const auto& [begin, length] : bare) {
    out.append(t.substr(at, begin - at)).append("\"").append(t.substr(begin, length)).append("\"");
    at = begin + length;
  }
  text = out.append(t.substr(at));
}

}  // namespace memplan::torch_export
