#include "estimators/restore/converted_lines.h"

#include <algorithm>

#include "estimators/restore/casts.h"
#include "estimators/restore/statement.h"

namespace memplan {

namespace {

/// "x" of "x.float(), self.weight"; empty where the arguments begin otherwise.
std::string_view widened_first(std::string_view arguments) {
  const std::string_view name = leading_name(arguments), rest = arguments.substr(name.size());
  const bool wide = std::ranges::any_of(fp32_conversions, [&](std::string_view c) { return rest.starts_with(c); });
  return wide ? name : std::string_view();
}

}  // namespace

ConvertedTo converted_to(std::string_view source) {
  if (!source.ends_with(')')) return {};  // most lines: no need to take them apart
  const Statement statement = parse_statement(source);
  std::string_view value = statement.value;
  constexpr std::string_view returns = "return ";
  const bool returned = value.starts_with(returns);
  if (returned) value.remove_prefix(returns.size());
  if ((statement.targets.empty() && !returned) || statement.augmented != 0) return {};
  int depth = 0;
  std::size_t last = value.npos;  // where the last bracket of the outermost level opens
  for (std::size_t i = 0; i < value.size(); ++i) {
    const char c = value[i];
    if (c == '(' || c == '[' || c == '{') {
      if (depth++ == 0) last = i;
    } else if (c == ')' || c == ']' || c == '}') {
      --depth;
    } else if (depth == 0 && (c == ' ' || c == ',')) {
      return {};  // an operator takes the conversion for itself
    }
  }
  if (depth != 0 || last == value.npos) return {};
  const std::string_view method = value.substr(0, last);
  std::string_view name = value.substr(last + 1, value.size() - last - 2);
  constexpr std::string_view type = ".dtype", keyword = "dtype=";
  if (!returned && (method == "super().forward" || method.ends_with("_norm")))
    return {std::string(widened_first(name)), false, true};
  if (method.ends_with(").float") && name.empty()) return {{}, true};
  if (name.starts_with(keyword)) name.remove_prefix(keyword.size());
  if (method.ends_with(").to") && name == "torch.float32") return {{}, true};
  if ((method.ends_with(".to") || method.ends_with(".type")) && name.ends_with(type))
    name.remove_suffix(type.size());
  else if (!method.ends_with(".type_as"))
    return {};
  return {std::ranges::all_of(name, in_name) ? std::string(name) : std::string()};
}

}  // namespace memplan
