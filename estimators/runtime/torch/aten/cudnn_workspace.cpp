#include "estimators/runtime/torch/aten/cudnn_workspace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include "estimators/runtime/torch/aten/cudnn_rules.h"
#include "estimators/runtime/torch/aten/cudnn_tables.h"

namespace memplan {

namespace {

using namespace cudnn_tables;

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

/// Lines by how unlike they are, the nearest first; of equals the one that stands first in the table.
using Nearest = std::vector<std::pair<std::pair<int, double>, const Lines::value_type*>>;

Nearest nearest_lines(const Lines& lines, const Shape& shape, std::size_t count) {
  Nearest all;
  all.reserve(lines.size());
  for (const auto& line : lines) all.emplace_back(distance(line.first, shape), &line);
  const auto nearer = [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second->first) < std::tie(b.first, b.second->first);
  };
  const std::size_t kept = std::min(count, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(), nearer);
  all.resize(kept);
  all.shrink_to_fit();
  return all;
}

/// Distances to a whole table take most of an estimate, and searches ask for the same few shapes at many batch sizes.
std::shared_ptr<const Nearest> remembered_lines(const Lines& lines, const Shape& shape) {
  constexpr std::size_t shapes = 4096, nearest = 128;
  static std::mutex mutex;
  static std::map<std::pair<const Lines*, Shape>, std::shared_ptr<const Nearest>> known;
  const std::pair key(&lines, shape);
  {
    const std::lock_guard lock(mutex);
    if (const auto it = known.find(key); it != known.end()) return it->second;
  }
  auto found = std::make_shared<const Nearest>(nearest_lines(lines, shape, nearest));
  const std::lock_guard lock(mutex);
  if (known.size() >= shapes) known.clear();
  return known.try_emplace(key, std::move(found)).first->second;
}

/// The figures of the nearest entries that have one, scaled.
Around of_the_nearest(const Tables& tables, int sm, const Lines& lines, const Shape& shape, int index,
                      std::int64_t batch, std::size_t count) {
  Around out;
  const auto take = [&](const Nearest& nearest) {
    out = {};
    for (const auto& [unlike, line] : nearest) {
      if (out.bytes.size() == count) return;
      const auto bytes = figure(tables, sm, line->first, line->second, index, batch);
      if (!bytes) continue;
      out.alike = out.alike || (out.bytes.empty() && unlike.first == 0);
      out.bytes.emplace_back(
          static_cast<std::int64_t>(static_cast<double>(bytes->count) * static_cast<double>(elements(shape, batch)) /
                                    static_cast<double>(elements(line->first, batch))));
    }
  };
  const auto near = remembered_lines(lines, shape);
  take(*near);
  if (out.bytes.size() < count && near->size() < lines.size()) take(nearest_lines(lines, shape, lines.size()));
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

/// Up to so many octaves away from a line, the trees of such convolutions are asked. Not next to it, the range has
/// what the others say as well.
constexpr double near_the_table = 2, next_to_a_line = 0.25;

/// How unlike the nearest line is in octaves, over all sizes; none where it is of another kind.
std::optional<double> octaves_to_a_line(const Looked& there) {
  const auto lines = remembered_lines(there.lines, there.shape);
  if (lines->empty() || lines->front().first.first != 0) return std::nullopt;
  return lines->front().first.second;
}

/// What the rules say, which were learnt from the base version's answers. Of another version or architecture engines
/// may be others: then anything from nothing to copies of the three tensors is possible, too. Where the base version is
/// installed, it says itself what the rules only learnt from it.
std::optional<ConvWorkspace> ruled(const ConvProblem& p, ConvPass pass, const CudnnOfRun& cudnn,
                                   std::optional<double> octaves = std::nullopt) {
  if (cudnn.version == for_onnxruntime) return std::nullopt;  // asks for other heuristics
  const bool near_table = octaves && *octaves <= near_the_table;
  auto rule = ruled_workspace(p, pass, cudnn.device.sm(), near_table);
  if (!rule) return std::nullopt;
  if (near_table && *octaves > next_to_a_line)
    if (const auto other = ruled_workspace(p, pass, cudnn.device.sm())) {
      rule->least = std::min(rule->least, other->least);
      rule->most = std::max(rule->most, other->most);
    }
  const bool asked_so = rule->own_card && cudnn.version == base_cudnn;
  ConvWorkspace out{rule->usual, Evidence::nearest_table_entry,
                    "cuDNN's workspace for this convolution is not in the table: by a rule learnt from what its "
                    "heuristics say of others"};
  if (!asked_so && cudnn.library)
    if (const auto said = cudnn.library->workspace(p, pass, cudnn.device, base_cudnn)) {
      out = {*said, Evidence::nearest_table_entry,
             "this version of cuDNN could not be asked about this convolution: what cuDNN 9.19 says is taken"};
      rule->most = std::max(rule->most, *said);
    }
  if (cudnn.reading == WorkspaceReading::least) out.bytes = asked_so ? rule->least : Bytes();
  if (cudnn.reading == WorkspaceReading::most)
    out.bytes = asked_so ? rule->most : std::max(rule->most, unknown_kind(p, cudnn.reading));
  return out;
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
    if (type >= 0)
      if (const auto rule = ruled(p, pass, cudnn)) return *rule;
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
  if (const auto rule = ruled(p, pass, cudnn, octaves_to_a_line(there))) return *rule;
  const std::size_t looked_at = cudnn.reading == WorkspaceReading::nearest ? 1 : entries_around;
  Around around = of_the_nearest(tables, there.table, there.lines, there.shape, there.index, p.input[0], looked_at);
  around.alike = around.alike && tables.known;
  return {read_as(cudnn.reading, around, p), Evidence::nearest_table_entry,
          "cuDNN's workspace for this convolution is not in the table: scaled from the nearest one that is"};
}

}  // namespace memplan
