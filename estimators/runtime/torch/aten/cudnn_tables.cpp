#include "estimators/runtime/torch/aten/cudnn_tables.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "estimators/base/error.h"
#include "estimators/runtime/torch/aten/cudnn_parts.h"
#include "estimators/runtime/torch/aten/cudnn_workspace.h"

namespace memplan {

namespace cudnn_tables {

namespace {

std::int64_t number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc())
    fail(ErrorKind::internal, "data/cudnn/workspaces.txt: not a number", std::string(text.substr(0, 40)));
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

Lines parse_lines(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    number(line);  // the architecture
    Shape shape;
    for (auto& v : shape) {
      line.remove_prefix(1);
      v = number(line);
    }
    lines.emplace_hint(lines.end(), shape, line.substr(1));
  }
  return lines;
}

/// The architectures of a file of data/cudnn: every line was asked for of each, whether one stands there or not.
Architectures architectures(std::string_view file) {
  Architectures out;
  for (const int sm : cudnn_parts::cards_of(file)) out.try_emplace(sm, file, sm);
  return out;
}

std::string_view item(std::string_view list, int index, char separator) {
  for (; index > 0; --index) {
    const auto end = list.find(separator);
    if (end == list.npos) return {};
    list.remove_prefix(end + 1);
  }
  return list.substr(0, list.find(separator));
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

/// Curve `index` of a line's curves at a batch size.
std::optional<Bytes> look_up(std::string_view curves, int index, std::int64_t batch) {
  std::string_view curve = item(curves, index, ';');
  if (!curve.empty() && curve[0] == '=') {
    curve.remove_prefix(1);
    curve = item(curves, static_cast<int>(number(curve)), ';');
  }
  return evaluate(curve, batch);
}

/// A list of figures for the sampled batch sizes; between and beyond them by the straight line through two.
std::optional<Bytes> of_samples(std::string_view figures, std::int64_t batch) {
  if (figures == "-") return std::nullopt;
  std::size_t after = 1;  // of the two, the larger one
  while (after + 1 < sampled.size() && sampled[after] < batch) ++after;
  const auto at = [&](std::size_t i) {
    std::string_view text = item(figures, static_cast<int>(i), ',');
    return number(text);
  };
  const std::int64_t low = at(after - 1), high = at(after);
  const double step = static_cast<double>(high - low) / static_cast<double>(sampled[after] - sampled[after - 1]);
  const double drawn = static_cast<double>(low) + step * static_cast<double>(batch - sampled[after - 1]);
  return Bytes(std::max<std::int64_t>(0, std::llround(drawn)));
}

}  // namespace

const Lines& Section::lines() const {
  std::call_once(read_, [&] { lines_ = parse_lines(cudnn_parts::part(file_, sm_)); });
  return lines_;
}

Tables tables_of(std::string_view cudnn) {
  static const Architectures base = architectures("workspaces");
  if (cudnn == base_cudnn) return {base};
  if (cudnn == for_onnxruntime) {
    static const Architectures asked_so = architectures("onnxruntime");
    return {asked_so};
  }
  static const std::map<std::string_view, Architectures> changes = [] {
    std::map<std::string_view, Architectures> out;
    out["9.10"] = architectures("differences-9.10");
    out["9.20"] = architectures("differences-9.20");
    out["9.24"] = architectures("differences-9.24");
    out["9.26"] = architectures("differences-9.26");
    return out;
  }();
  if (const auto of = changes.find(cudnn); of != changes.end()) return {base, &of->second};
  return {base, nullptr, false};  // 9.1 and 9.5 say nothing without a device
}

std::optional<Bytes> figure(const Tables& tables, int sm, const Shape& shape, std::string_view base, int index,
                            std::int64_t batch) {
  if (!tables.changes) return look_up(base, index, batch);
  const auto lines = tables.changes->find(sm);
  if (lines == tables.changes->end()) return look_up(base, index, batch);
  const auto own = lines->second.lines().find(shape);
  if (own == lines->second.lines().end()) return look_up(base, index, batch);
  std::string_view curve = item(own->second, index, ';');
  if (curve == "~") return look_up(base, index, batch);
  if (curve.starts_with('=')) {
    curve.remove_prefix(1);
    curve = item(own->second, static_cast<int>(number(curve)), ';');
  }
  return of_samples(curve, batch);
}

}  // namespace cudnn_tables

}  // namespace memplan
