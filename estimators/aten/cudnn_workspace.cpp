#include "estimators/aten/cudnn_workspace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace memplan {

namespace embedded {
std::string_view cudnn_workspaces_txt();
}

namespace {

/// Where the lines of the table begin: "sm C H W K R S ph pw sh sw dh dw groups" -> its curves. The curves are read
/// when they are asked for: the table is large, and a model needs a few dozen lines of it.
const std::unordered_map<std::string_view, std::string_view>& lines() {
  static const auto all = [] {
    std::unordered_map<std::string_view, std::string_view> out;
    std::string_view text = embedded::cudnn_workspaces_txt();
    while (!text.empty()) {
      const auto end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      const auto bar = line.find('|');
      if (line.empty() || line[0] == '#' || bar == line.npos) continue;
      out.emplace(line.substr(0, bar), line.substr(bar + 1));
    }
    return out;
  }();
  return all;
}

std::string_view item(std::string_view list, int index, char separator) {
  for (; index > 0; --index) {
    const auto end = list.find(separator);
    if (end == list.npos) return {};
    list.remove_prefix(end + 1);
  }
  return list.substr(0, list.find(separator));
}

std::int64_t number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) fail(ErrorKind::internal, "data/cudnn/workspaces.txt: not a number", std::string(text));
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// The batch sizes of the table: 1, 2 .. 64, 66 .. 128, 136 .. 256, 288 .. 1024 (tools/cudnn_workspaces/query.cpp).
std::int64_t index_of_batch(std::int64_t n) {
  if (n <= 64) return n - 1;
  if (n <= 128) return 63 + (n - 64) / 2;
  if (n <= 256) return 95 + (n - 128) / 8;
  return 111 + (n - 256) / 32;
}

std::optional<Bytes> evaluate(std::string_view curve, std::int64_t batch) {
  if (curve.empty() || curve == "-") return std::nullopt;
  const auto colon = curve.find(':');
  int line = 0;
  if (colon != curve.npos) {
    std::string_view steps = curve.substr(colon + 1);
    for (std::int64_t left = index_of_batch(batch); !steps.empty();) {
      const char name = steps[0];
      line = name >= 'a' ? name - 'a' : 26 + name - 'A';
      steps.remove_prefix(1);
      if (steps.empty()) break;
      const std::int64_t length = steps[0] <= '9' ? number(steps) : 1;
      if (left < length) break;
      left -= length;
    }
  }
  std::string_view text = item(curve.substr(0, colon), line, ',');
  std::int64_t bytes = number(text);
  if (!text.empty() && text[0] == '+') {
    text.remove_prefix(1);
    bytes = checked_add(bytes, checked_mul(number(text), batch));
  }
  return Bytes(bytes);
}

}  // namespace

std::optional<Bytes> conv_workspace(const ConvProblem& p, ConvPass pass, int sm, int) {
  if (p.input.size() != 4) return std::nullopt;
  int type = 0;
  switch (p.dtype) {
    case DType::float32: type = 0; break;
    case DType::float16: type = 1; break;
    case DType::bfloat16: type = 2; break;
    default: return std::nullopt;
  }
  const auto& [c, h, w] = std::tuple(p.input[1], p.input[2], p.input[3]);
  const auto it = lines().find(fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {}", sm, c, h, w, p.weight[0], p.weight[2], p.weight[3],
                                           p.padding[0], p.padding[1], p.stride[0], p.stride[1], p.dilation[0], p.dilation[1], p.groups));
  if (it == lines().end()) return std::nullopt;
  const int index = (type * 2 + (p.channels_last ? 1 : 0)) * 3 + static_cast<int>(pass);
  std::string_view curve = item(it->second, index, ';');
  if (!curve.empty() && curve[0] == '=') {
    curve.remove_prefix(1);
    curve = item(it->second, static_cast<int>(number(curve)), ';');
  }
  return evaluate(curve, p.input[0]);
}

}  // namespace memplan
