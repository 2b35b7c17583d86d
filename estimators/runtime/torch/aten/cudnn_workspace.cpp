#include "estimators/runtime/torch/aten/cudnn_workspace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>

namespace memplan {

namespace embedded {
std::string_view cudnn_workspaces_txt();
std::string_view cudnn_differences_9_10_txt();
std::string_view cudnn_differences_9_20_txt();
std::string_view cudnn_differences_9_24_txt();
std::string_view cudnn_differences_9_26_txt();
std::string_view cudnn_onnxruntime_txt();
}  // namespace embedded

namespace {

/// What the table in full was made from; of the others there are the differences.
constexpr std::string_view base_cudnn = "9.19";

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

/// Of one architecture. The curves stay text until they are asked for: the table is large, and a model needs a few
/// dozen lines of it.
using Lines = std::map<Shape, std::string_view>;

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

/// The lines of one architecture, which stand together; read when a run on it wants them.
class Section {
 public:
  void add(std::string_view text) {
    text_ = text_.empty() ? text : std::string_view(text_.data(), static_cast<std::size_t>(text.end() - text_.data()));
  }
  const Lines& lines() const {
    std::call_once(read_, [&] { lines_ = parse_lines(text_); });
    return lines_;
  }

 private:
  std::string_view text_;
  mutable std::once_flag read_;
  mutable Lines lines_;
};

using Architectures = std::map<int, Section>;

template <std::string_view (*embedded_text)()>
const Architectures& parsed() {
  static const Architectures all = [] {
    Architectures out;
    std::string_view text = embedded_text();
    while (!text.empty()) {
      const auto end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line.empty() || line[0] == '#') continue;
      // "@120": every line was asked for, whether one stands here or not
      const bool alone = line[0] == '@';
      std::string_view of = line.substr(alone ? 1 : 0);
      Section& section = out[static_cast<int>(number(of))];
      if (!alone) section.add(line);
    }
    return out;
  }();
  return all;
}

/// Of one cuDNN: the table that says everything, and what this version says otherwise.
struct Tables {
  const Architectures& base;
  const Architectures* changes = nullptr;  ///< curves that are not "~"
  bool known = true;                       ///< false: another version's figures are taken
};

/// Batch sizes that the differences were asked for (tools/cudnn_workspaces/query.cpp).
constexpr std::array<std::int64_t, 13> sampled{1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256};

Tables tables_of(std::string_view cudnn) {
  const Architectures& base = parsed<embedded::cudnn_workspaces_txt>();
  if (cudnn == base_cudnn) return {base};
  if (cudnn == for_onnxruntime) return {parsed<embedded::cudnn_onnxruntime_txt>()};
  if (cudnn == "9.10") return {base, &parsed<embedded::cudnn_differences_9_10_txt>()};
  if (cudnn == "9.20") return {base, &parsed<embedded::cudnn_differences_9_20_txt>()};
  if (cudnn == "9.24") return {base, &parsed<embedded::cudnn_differences_9_24_txt>()};
  if (cudnn == "9.26") return {base, &parsed<embedded::cudnn_differences_9_26_txt>()};
  return {base, nullptr, false};  // 9.1 and 9.5 say nothing without a device
}

/// All that can be read.
constexpr std::array asked_versions{base_cudnn, std::string_view("9.10"), std::string_view("9.20"),
                                    std::string_view("9.24"), std::string_view("9.26")};

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

/// The figure of an entry, by the version's own curve where it has one.
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
                    (a[dilation_h] != b[dilation_h] || a[dilation_w] != b[dilation_w]) + (grouping(a) != grouping(b)) +
                    ((a[H] == 1) != (b[H] == 1));
  const auto octaves = [](std::int64_t x, std::int64_t y) {
    return std::abs(std::log2(static_cast<double>(x) / static_cast<double>(y)));
  };
  return {kinds, octaves(a[C], b[C]) + octaves(a[K], b[K]) + octaves(a[H], b[H]) + octaves(a[W], b[W])};
}

/// The lines of the architecture, or of the one before it: kernels of an older architecture run on newer ones.
const std::pair<const int, Section>& lines_for(const Architectures& all, int sm) {
  const auto after = all.upper_bound(sm);
  return after == all.begin() ? *after : *std::prev(after);
}

/// How many entries around a problem bound its workspace.
constexpr std::size_t entries_around = 12;

struct Around {
  std::vector<Bytes> bytes;  ///< the nearest first
  bool alike = false;        ///< the nearest is of the same kind: kernel, stride, dilation, groups
};

/// The figures of the nearest entries, scaled.
Around of_the_nearest(const Tables& tables, int sm, const Lines& lines, const Shape& shape, int index,
                      std::int64_t batch, std::size_t count) {
  using Entry = std::pair<std::pair<int, double>, double>;
  std::vector<Entry> nearest;
  for (const auto& [known, curves] : lines) {
    const auto d = distance(known, shape);
    if (nearest.size() == count && !(d < nearest.back().first)) continue;
    const auto bytes = figure(tables, sm, known, curves, index, batch);
    if (!bytes) continue;
    const double scaled = static_cast<double>(bytes->count) * static_cast<double>(elements(shape, batch)) /
                          static_cast<double>(elements(known, batch));
    const auto after = std::find_if(nearest.begin(), nearest.end(), [&](const Entry& e) { return d < e.first; });
    nearest.insert(after, {d, scaled});
    if (nearest.size() > count) nearest.pop_back();
  }
  Around out;
  out.alike = !nearest.empty() && nearest.front().first.first == 0;
  for (const Entry& e : nearest) out.bytes.emplace_back(static_cast<std::int64_t>(e.second));
  return out;
}

/// No table has them. Engines that work in another layout copy input, output and weight into it.
Bytes unknown_kind(const ConvProblem& p, WorkspaceReading reading) {
  if (reading != WorkspaceReading::most) return {};
  return bytes_of(p.dtype, checked_add(checked_add(p.input.product(), p.output.product()), p.weight.product()));
}

/// What the tables say of a convolution of images: its own line if there is one, and where the nearest lines are.
struct Looked {
  std::optional<ConvWorkspace> found;
  int table;  ///< the architecture whose lines are taken
  const Lines& lines;
  Shape shape;
  int index;  ///< of the curve in a line
};

/// Of a version or an architecture that was never asked, whose line others have: nothing, what any version asked for,
/// or copies.
Bytes never_asked(const ConvProblem& p, WorkspaceReading reading, const Looked& there) {
  if (reading == WorkspaceReading::least) return {};
  Bytes most = std::max(there.found->bytes, unknown_kind(p, reading));
  for (const std::string_view version : asked_versions)
    if (const auto bytes =
            figure(tables_of(version), there.table, there.shape, there.lines.at(there.shape), there.index, p.input[0]))
      most = std::max(most, *bytes);
  return most;
}

Bytes read_as(WorkspaceReading reading, const Around& around, const ConvProblem& p) {
  if (reading == WorkspaceReading::nearest) return around.bytes.empty() ? Bytes() : around.bytes.front();
  const Bytes other_kind = around.alike ? Bytes() : unknown_kind(p, reading);
  if (around.bytes.empty()) return other_kind;
  const auto [least, most] = std::minmax_element(around.bytes.begin(), around.bytes.end());
  if (reading == WorkspaceReading::least) return around.alike ? *least : other_kind;
  return std::max(*most, other_kind);
}

/// supportsBFloat16ConvolutionWithCuDNNv8 (aten/src/ATen/cuda/detail/CUDAHooks.cpp).
constexpr int oldest_bf16 = 80;

constexpr int curves_of_dtype(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return 0;
    case DType::float16:
      return 1;
    case DType::bfloat16:
      return 2;
    default:
      return -1;
  }
}

ConvWorkspace own_line(const Tables& tables, int table, int sm, Bytes bytes, std::int64_t batch) {
  if (!tables.known || (tables.changes && !tables.changes->count(table)))
    return {bytes, Evidence::nearest_table_entry,
            "cuDNN's workspaces are not known for this version of it: those of another are taken"};
  if (tables.changes && std::find(sampled.begin(), sampled.end(), batch) == sampled.end())
    return {bytes, Evidence::nearest_table_entry,
            "this version of cuDNN was asked about other batch sizes: drawn between them"};
  return {bytes, table == sm ? Evidence::recorded : Evidence::nearest_table_entry,
          table == sm ? "cuDNN's workspace as its heuristics say"
                      : "cuDNN's workspaces are not known for this architecture: those of the nearest are taken"};
}

Looked look(const Tables& tables, const ConvProblem& p, ConvPass pass, int type, int sm) {
  const Shape shape{p.input[1],   p.input[2],  p.input[3],  p.weight[0],   p.weight[2],   p.weight[3], p.padding[0],
                    p.padding[1], p.stride[0], p.stride[1], p.dilation[0], p.dilation[1], p.groups};
  const auto& [table, section] = lines_for(tables.base, sm);
  const Lines& lines = section.lines();
  Looked out{{}, table, lines, shape, (type * 2 + (p.channels_last ? 1 : 0)) * 3 + static_cast<int>(pass)};
  if (const auto it = lines.find(shape); it != lines.end())
    if (const auto bytes = figure(tables, table, shape, it->second, out.index, p.input[0]))
      out.found = own_line(tables, table, sm, *bytes, p.input[0]);
  return out;
}

/// What an installed cuDNN says, where one can be asked.
std::optional<ConvWorkspace> asked(const ConvProblem& p, ConvPass pass, const CudnnOfRun& cudnn) {
  if (!cudnn.library) return std::nullopt;
  const auto bytes = cudnn.library->workspace(p, pass, cudnn.device, cudnn.version);
  if (!bytes) return std::nullopt;
  return ConvWorkspace{*bytes, Evidence::recorded, "cuDNN's workspace as the installed library says", true};
}

}  // namespace

ConvWorkspace conv_workspace(const ConvProblem& p, ConvPass pass, const CudnnOfRun& cudnn) {
  if (p.dtype == DType::bfloat16 && cudnn.device.sm() < oldest_bf16)
    return {
        unknown_kind(p, cudnn.reading), Evidence::assumed,
        "before compute capability 8.0 PyTorch runs convolutions of bfloat16 in kernels of its own, whose columns are "
        "not counted"};
  const int type = curves_of_dtype(p.dtype);
  if (p.input.size() != 4 || type < 0) {
    if (const auto said = asked(p, pass, cudnn)) return *said;
    return {unknown_kind(p, cudnn.reading), Evidence::assumed,
            type < 0 ? "cuDNN's workspace for this data type is not known"
                     : "cuDNN's workspace of three-dimensional convolutions is not known"};
  }
  const Tables tables = tables_of(cudnn.version);
  const Looked there = look(tables, p, pass, type, cudnn.device.sm());
  if (there.found && there.found->evidence == Evidence::recorded) return *there.found;
  if (const auto said = asked(p, pass, cudnn)) return *said;
  if (there.found) {
    ConvWorkspace own = *there.found;
    const bool never = !tables.known || there.table != cudnn.device.sm();
    if (never && cudnn.reading != WorkspaceReading::nearest) own.bytes = never_asked(p, cudnn.reading, there);
    return own;
  }
  const std::size_t looked_at = cudnn.reading == WorkspaceReading::nearest ? 1 : entries_around;
  Around around = of_the_nearest(tables, there.table, there.lines, there.shape, there.index, p.input[0], looked_at);
  around.alike = around.alike && tables.known;
  return {read_as(cudnn.reading, around, p), Evidence::nearest_table_entry,
          "cuDNN's workspace for this convolution is not in the table: scaled from the nearest one that is"};
}

}  // namespace memplan
