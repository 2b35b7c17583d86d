#include "cli/flags/threshold.h"

#include <fmt/format.h>

#include <cmath>

#include "cli/flags/values.h"
#include "estimators/base/error.h"
#include "estimators/base/text.h"

namespace memplan::cli {

Bytes Threshold::of(Bytes whole) const {
  if (bytes) return *bytes;
  return Bytes(static_cast<std::int64_t>(std::floor(static_cast<double>(whole.count) * percent / 100.0)));
}

Bytes parse_size_with_unit(std::string_view text, std::string_view flag, std::string_view or_else) {
  const Bytes bytes = parse_size(text, flag);
  // Zero is a size that somebody may mean; ten bytes are not.
  const bool bare = text.find_first_not_of("0123456789.") == std::string_view::npos;
  if (bare && bytes.count > 0 && bytes.count < (1 << 20))
    fail(ErrorKind::usage, fmt::format("'{}' would be {} bytes", text, text), std::string(flag),
         fmt::format("did you mean {0}MiB or {0}GiB? Give a size with its unit{1}", text, or_else));
  return bytes;
}

Threshold parse_threshold(std::string_view text, std::string_view flag) {
  Threshold t;
  t.text = std::string(text);
  if (text.empty())
    fail(ErrorKind::usage, fmt::format("{} has no value", flag), std::string(flag),
         "give bytes, a size such as 70GiB, or a percentage such as 90%");
  if (text.back() == '%')
    t.percent = parse_number(trim(text.substr(0, text.size() - 1)), flag);
  else
    t.bytes = parse_size_with_unit(text, flag, ", or a percentage such as 90%");
  return t;
}

void refuse_more_than_all(const Threshold& share, std::string_view flag) {
  if (!share.bytes && share.percent > 100)
    fail(ErrorKind::usage, fmt::format("'{}' is more than the card has, so nothing would ever exceed it", share.text),
         std::string(flag), "give a share such as 90%, or a size such as 70GiB");
}

}  // namespace memplan::cli
