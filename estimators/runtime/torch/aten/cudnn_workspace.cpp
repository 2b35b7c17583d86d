#include "estimators/runtime/torch/aten/cudnn_workspace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

namespace memplan {

namespace embedded {
std::string_view cudnn_workspaces_txt();
std::string_view cudnn_onnxruntime_txt();
}  // namespace embedded

namespace {

/// A convolution without batch size, precision and layout.
using Shape = std::array<std::int64_t, 13>;  // C H W K R S pad_h pad_w stride_h stride_w dilation_h dilation_w groups
enum { C, H, W, K, R, S, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, groups };

std::int64_t number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc())
    fail(ErrorKind::internal, "data/cudnn/workspaces.txt: not a number", std::string(text.substr(0, 40)));
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// The table by architecture. The curves stay text until they are asked for: the table is large, and a model needs
/// a few dozen lines of it.
using Lines = std::map<Shape, std::string_view>;

using Architectures = std::map<int, Lines>;

template <std::string_view (*embedded_text)()>
const Architectures& parsed() {
  static const Architectures all = [] {
    Architectures out;
    std::string_view text = embedded_text();
    while (!text.empty()) {
      const auto end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line.empty() || line[0] == '#') continue;
      const auto of = static_cast<int>(number(line));
      Shape shape;
      for (auto& v : shape) {
        line.remove_prefix(1);
        v = number(line);
      }
      out[of].emplace(shape, line.substr(1));
    }
    return out;
  }();
  return all;
}

/// Tables by their names in data/, one for every cuDNN that a profile of PyTorch names.
const Architectures& architectures(std::string_view table) {
  if (table == "cudnn/workspaces.txt") return parsed<embedded::cudnn_workspaces_txt>();
  if (table == "cudnn/onnxruntime.txt") return parsed<embedded::cudnn_onnxruntime_txt>();
  fail(ErrorKind::internal, "no table of cuDNN's workspaces: " + std::string(table));
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

std::int64_t elements(const Shape& s, std::int64_t batch) {
  const std::int64_t p = (s[H] + 2 * s[pad_h] - s[dilation_h] * (s[R] - 1) - 1) / s[stride_h] + 1;
  const std::int64_t q = (s[W] + 2 * s[pad_w] - s[dilation_w] * (s[S] - 1) - 1) / s[stride_w] + 1;
  const std::int64_t images =
      checked_add(checked_mul(checked_mul(s[C], s[H]), s[W]), checked_mul(checked_mul(s[K], p), q));
  return checked_add(checked_mul(batch, images),
                     checked_mul(checked_mul(s[K], s[C] / s[groups]), checked_mul(s[R], s[S])));
}

/// How unlike two convolutions are: first what makes cuDNN use other kernels, then the sizes, in powers of two.
std::pair<int, double> distance(const Shape& a, const Shape& b) {
  const auto grouping = [](const Shape& s) { return s[groups] == 1 ? 0 : s[groups] == s[C] ? 1 : 2; };
  const int kinds = (a[R] != b[R] || a[S] != b[S]) + (a[stride_h] != b[stride_h] || a[stride_w] != b[stride_w]) +
                    (a[dilation_h] != b[dilation_h] || a[dilation_w] != b[dilation_w]) + (grouping(a) != grouping(b));
  const auto octaves = [](std::int64_t x, std::int64_t y) {
    return std::abs(std::log2(static_cast<double>(x) / static_cast<double>(y)));
  };
  return {kinds, octaves(a[C], b[C]) + octaves(a[K], b[K]) + octaves(a[H], b[H]) + octaves(a[W], b[W])};
}

/// The lines of the architecture, or of the one before it: kernels of an older architecture run on newer ones. Of 8.6
/// only a part of the convolutions was asked for.
const std::pair<const int, Lines>& lines_for(const Architectures& all, int sm, const Shape& shape) {
  constexpr int partial = 86;
  const auto after = all.upper_bound(sm);
  if (after == all.begin()) return *after;
  const auto own = std::prev(after);
  return own->first == partial && own != all.begin() && !own->second.count(shape) ? *std::prev(own) : *own;
}

/// How many entries around a problem bound its workspace.
constexpr std::size_t entries_around = 12;

/// The figures of the nearest entries, scaled; the nearest first.
std::vector<Bytes> of_the_nearest(const Lines& lines, const Shape& shape, int index, std::int64_t batch,
                                  std::size_t count) {
  using Entry = std::pair<std::pair<int, double>, double>;
  std::vector<Entry> nearest;
  for (const auto& [known, curves] : lines) {
    const auto d = distance(known, shape);
    if (nearest.size() == count && !(d < nearest.back().first)) continue;
    const auto bytes = look_up(curves, index, batch);
    if (!bytes) continue;
    const double scaled = static_cast<double>(bytes->count) * static_cast<double>(elements(shape, batch)) /
                          static_cast<double>(elements(known, batch));
    const auto after = std::find_if(nearest.begin(), nearest.end(), [&](const Entry& e) { return d < e.first; });
    nearest.insert(after, {d, scaled});
    if (nearest.size() > count) nearest.pop_back();
  }
  std::vector<Bytes> out;
  for (const Entry& e : nearest) out.emplace_back(static_cast<std::int64_t>(e.second));
  return out;
}

Bytes read_as(WorkspaceReading reading, const std::vector<Bytes>& nearest) {
  if (nearest.empty()) return {};
  if (reading == WorkspaceReading::nearest) return nearest.front();
  const auto [least, most] = std::minmax_element(nearest.begin(), nearest.end());
  return reading == WorkspaceReading::least ? *least : *most;
}

/// No table has them. Engines that work in another layout copy input, output and weight into it.
Bytes unknown_kind(const ConvProblem& p, WorkspaceReading reading) {
  if (reading != WorkspaceReading::most) return {};
  return bytes_of(p.dtype, checked_add(checked_add(p.input.product(), p.output.product()), p.weight.product()));
}

}  // namespace

ConvWorkspace conv_workspace(const ConvProblem& p, ConvPass pass, int sm, std::string_view name,
                             WorkspaceReading reading) {
  if (p.input.size() != 4)
    return {unknown_kind(p, reading), Evidence::assumed,
            "cuDNN's workspace of three-dimensional convolutions is not known"};
  int type = 0;
  switch (p.dtype) {
    case DType::float32:
      type = 0;
      break;
    case DType::float16:
      type = 1;
      break;
    case DType::bfloat16:
      type = 2;
      break;
    default:
      return {unknown_kind(p, reading), Evidence::assumed, "cuDNN's workspace for this data type is not known"};
  }
  const Shape shape{p.input[1],   p.input[2],  p.input[3],  p.weight[0],   p.weight[2],   p.weight[3], p.padding[0],
                    p.padding[1], p.stride[0], p.stride[1], p.dilation[0], p.dilation[1], p.groups};
  const int index = (type * 2 + (p.channels_last ? 1 : 0)) * 3 + static_cast<int>(pass);
  const auto& [table, lines] = lines_for(architectures(name), sm, shape);
  if (const auto it = lines.find(shape); it != lines.end())
    if (const auto bytes = look_up(it->second, index, p.input[0]))
      return {*bytes, table == sm ? Evidence::recorded : Evidence::nearest_table_entry,
              table == sm ? "cuDNN's workspace as its heuristics say"
                          : "cuDNN's workspaces are not known for this architecture: those of the nearest are taken"};
  const std::size_t looked_at = reading == WorkspaceReading::nearest ? 1 : entries_around;
  return {read_as(reading, of_the_nearest(lines, shape, index, p.input[0], looked_at)), Evidence::nearest_table_entry,
          "cuDNN's workspace for this convolution is not in the table: scaled from the nearest one that is"};
}

}  // namespace memplan
