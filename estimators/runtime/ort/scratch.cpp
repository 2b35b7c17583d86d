#include "estimators/runtime/ort/scratch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "estimators/runtime/torch/aten/cudnn_workspace.h"

namespace memplan::ort {

namespace {

using onnx_format::At;
using onnx_format::Sizes;

/// What counts in the range alone: up to so many bytes more.
Note up_to(const At& at, const char* text, std::int64_t bytes) {
  Note note{{}, text, Evidence::assumed, About::op, at.node.op_type};
  note.off = Effect{Bytes(), Bytes(bytes)};
  return note;
}

Scratch one(std::int64_t bytes) { return bytes > 0 ? Scratch{{bytes}, {}, {}} : Scratch{}; }

std::optional<ConvProblem> problem_of(const At& at) {
  const auto &x = at.sizes(0), &w = at.sizes(1);
  const auto& y = at.inferred[at.node.outputs[0]].sizes;
  if (!x || !w || !y || x->size() < 3 || x->size() > 5) return std::nullopt;
  const std::size_t n = x->size() - 2;
  ConvProblem p;
  const auto image = [&](Sizes sizes, std::int64_t one) {  // [N, C, D] runs as [N, C, D, 1] (cuda/nn/conv.cc)
    if (n == 1) sizes.push_back(one);
    return Dims(sizes);
  };
  const Sizes pads = at.list("pads").value_or(Sizes(2 * n, 0));
  p.input = image(*x, 1);
  p.weight = image(*w, 1);
  p.output = image(*y, 1);
  p.stride = image(at.list("strides").value_or(Sizes(n, 1)), 1);
  p.dilation = image(at.list("dilations").value_or(Sizes(n, 1)), 1);
  p.padding = image(Sizes(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(n)), 0);
  p.groups = at.integer("group", 1);
  p.dtype = at.in(0).dtype.value_or(DType::float32);
  return p;
}

Scratch conv(const At& at, const ScratchContext& c) {
  const auto p = problem_of(at);
  if (!p)
    return {{},
            {},
            Note{{},
                 "convolutions of unknown sizes are taken to need no workspace",
                 Evidence::assumed,
                 About::workspace,
                 at.node.op_type}};
  // DEFAULT asks the fallback heuristics: one int for each element of the window (recorded).
  if (c.setup.conv_search == ConvSearch::fallback) {
    std::int64_t bytes = 4;
    for (int i = 1; i < p->weight.size(); ++i) bytes = checked_mul(bytes, p->weight[i]);
    Scratch out = one(bytes);
    // Recorded: up to 32 times as much where a group has few channels, by a rule that is not known.
    if (p->groups > 1)
      out.note = up_to(at, "index tables of grouped convolutions under DEFAULT are bounded, not counted",
                       checked_mul(32, bytes));
    return out;
  }
  // ONNX Runtime asks cuDNN's frontend: another heuristic mode and another alignment than PyTorch's, so another table.
  // A bias is added by a kernel of its own.
  const ConvWorkspace found = conv_workspace(*p, ConvPass::forward, {c.device, for_onnxruntime, c.reading, c.cudnn});
  Scratch out = one(found.bytes.count);
  if (found.evidence > Evidence::proven_by_file)
    out.note = Note{{}, std::string(found.why), found.evidence, About::workspace, at.node.op_type};
  return out;
}

std::int64_t float_bytes(const At& at, GraphValueId id) {
  return id >= 0 && at.inferred[id].sizes ? checked_mul(4, onnx_format::count_of(*at.inferred[id].sizes)) : 0;
}

/// A kernel whose scratch no rule here states: up to a copy of all that it reads and writes, counted in the range.
Scratch bounded(const At& at, const char* text) {
  std::int64_t bytes = 0;
  for (const auto* ids : {&at.node.inputs, &at.node.outputs})
    for (const GraphValueId id : *ids) bytes = checked_add(bytes, float_bytes(at, id));
  return {{}, {}, up_to(at, text, bytes)};
}

/// compute_reduce_matrix_columns_intermediate_buffer_size (cuda/reduction/reduction_functions.cu): a partial result and
/// a counter for every row and block of columns, where all reduced axes are the last ones.
Scratch reduce(const At& at, const ScratchContext&) {
  if (!at.sizes(0) || at.sizes(0)->empty()) return {};
  const Sizes& x = *at.sizes(0);
  const auto axes = at.list("axes", 1);
  std::vector<bool> gone(x.size(), !axes || axes->empty());
  if (axes)
    for (const std::int64_t a : *axes) gone[onnx_format::axis_of(a, x.size(), at.node)] = true;
  std::int64_t rows = 1, columns = 1;
  bool trailing = true, seen = false;
  for (std::size_t i = 0; i < x.size(); ++i) {
    (gone[i] ? columns : rows) = checked_mul(gone[i] ? columns : rows, x[i]);
    if (seen && !gone[i] && x[i] != 1) trailing = false;
    seen = seen || (gone[i] && x[i] != 1);
  }
  if (!seen) return {};
  if (!trailing) return bounded(at, "scratch of reductions over other axes than the last ones is bounded, not counted");
  constexpr std::int64_t warp = 32, per_thread = 4, warps = 8, blocks = 256, alignment = 16;
  const std::int64_t height = std::clamp<std::int64_t>(columns / (per_thread * warp), 1, warps);
  const std::int64_t grid = std::clamp<std::int64_t>(columns / (per_thread * warp * height), 1, blocks);
  return one(checked_add(checked_mul(rows, checked_add(checked_mul(grid, 4), 4)), alignment - 1));
}

/// The pieces on an axis, where the kernel's call does not describe them: addresses of equal ones; of unequal ones also
/// their sizes, where each begins, and for every place on the axis its piece.
std::vector<std::int64_t> tables_of(const std::vector<std::int64_t>& pieces, bool in_call) {
  constexpr std::size_t most_addresses = 32;  // TArray's
  const auto each = checked_mul(8, static_cast<std::int64_t>(pieces.size()));
  if (pieces.empty() || in_call) return {};
  if (std::equal(pieces.begin() + 1, pieces.end(), pieces.begin()))
    return pieces.size() > most_addresses ? std::vector{each} : std::vector<std::int64_t>{};
  std::int64_t places = 0;
  for (const std::int64_t n : pieces) places = checked_add(places, n);
  return {each, each, each, checked_mul(8, places)};
}

std::vector<std::int64_t> pieces_of(const At& at, const std::vector<GraphValueId>& values, std::int64_t axis) {
  std::vector<std::int64_t> out;
  for (const GraphValueId id : values)
    if (id >= 0 && at.inferred[id].sizes && !at.inferred[id].sizes->empty())
      out.push_back((*at.inferred[id].sizes)[onnx_format::axis_of(axis, at.inferred[id].sizes->size(), at.node)]);
  return out;
}

/// cuda/tensor/split.cc
Scratch split(const At& at, const ScratchContext& c) {
  if (!at.sizes(0) || at.sizes(0)->empty()) return {};
  const std::int64_t axis = at.integer("axis", 0);
  const std::vector<std::int64_t> pieces = pieces_of(at, at.node.outputs, axis);
  const bool last = onnx_format::axis_of(axis, at.sizes(0)->size(), at.node) + 1 == at.sizes(0)->size();
  const bool in_call =
      last && pieces.size() >= c.profile.least_split_in_call && pieces.size() <= c.profile.most_split_in_call;
  return {tables_of(pieces, in_call), {}, {}};
}

/// cuda/tensor/concat.cc
Scratch concat(const At& at, const ScratchContext& c) {
  const std::vector<std::int64_t> pieces = pieces_of(at, at.node.inputs, at.integer("axis", 0));
  return {tables_of(pieces, pieces.size() <= c.profile.concat_in_call), {}, {}};
}

/// Where each slice begins (cuda/tensor/gather_nd.cc).
Scratch gather_nd(const At& at, const ScratchContext& c) {
  if (!at.sizes(1) || at.sizes(1)->empty() || at.sizes(1)->back() == 0) return {};
  const std::int64_t depth = at.sizes(1)->back();
  Scratch out = one(checked_mul(8, onnx_format::count_of(*at.sizes(1)) / depth));
  if (c.profile.gather_nd_sizes) out.bytes.insert(out.bytes.begin(), checked_mul(8, depth));
  return out;
}

/// A bias of one row is multiplied with as many ones as the result has rows; one of one column, with as many as it has
/// columns.
Scratch gemm(const At& at, const ScratchContext& c) {
  const auto& y = at.inferred[at.node.outputs.at(0)].sizes;
  if (!c.profile.bias_by_ones || !at.has(2) || !at.sizes(2) || !y || y->size() != 2) return {};
  const auto beta = at.node.attributes.find("beta");
  const auto* scale = beta == at.node.attributes.end() ? nullptr : std::get_if<double>(&beta->second);
  const Sizes& bias = *at.sizes(2);
  if ((scale && *scale == 0) || onnx_format::count_of(bias) == 1) return {};
  Scratch out;
  const std::int64_t count = bias.size() == 1 || bias[0] == 1 ? (*y)[0] : bias[1] == 1 ? (*y)[1] : 0;
  out.ones = bytes_of(at.in(0).dtype.value_or(DType::float32), count).count;
  return out;
}

/// When the session is made, recurrent layers take a state for dropout, a generator for every thread of the card, and
/// copy weights that the file holds into cuDNN's form, all in one piece (cuda/rnn/cudnn_rnn_base.h). A run takes the
/// sequences' lengths and a workspace, which only a device knows: at least every gate, forward and recomputed.
Scratch recurrent(const At& at, const ScratchContext& c) {
  std::int64_t weights = 0, out = 0;
  bool stored = true;
  for (std::size_t i = 1; i < 4; ++i) {
    if (!at.has(i)) continue;
    weights = checked_add(weights, float_bytes(at, at.node.inputs[i]));
    stored = stored && c.stored(at.node.inputs[i]);
  }
  for (const GraphValueId id : at.node.outputs) out = checked_add(out, float_bytes(at, id));
  Scratch found{{}, {16LL * c.device.multiprocessors * c.device.threads_per_multiprocessor}, {}};
  if (at.sizes(0) && at.sizes(0)->size() == 3 && at.has(0)) {
    const std::int64_t gates = at.node.op_type == "LSTM" ? 4 : at.node.op_type == "GRU" ? 3 : 1;
    found.bytes = {checked_mul(4, (*at.sizes(0))[1]), checked_mul(2 * gates, float_bytes(at, at.node.outputs.at(0)))};
  }
  // ReorderBidirectionalDataInSequence (cuda/rnn/cudnn_rnn_base.cc) puts the two directions into ONNX's order.
  if (at.text("direction", "forward") == "bidirectional") found.bytes.push_back(float_bytes(at, at.node.outputs.at(0)));
  if (stored) found.kept.push_back(weights);
  found.note = up_to(at, "of the workspace of recurrent layers only the least is counted",
                     checked_add(stored ? 0 : weights, checked_mul(16, out)));
  return found;
}

struct Row {
  std::string_view op;
  Scratch (*scratch)(const At&, const ScratchContext&);
};

constexpr std::array rows{
    Row{"Conv", conv},     Row{"FusedConv", conv},     Row{"ReduceMean", reduce}, Row{"ReduceSum", reduce},
    Row{"Split", split},   Row{"GatherND", gather_nd}, Row{"LSTM", recurrent},    Row{"GRU", recurrent},
    Row{"RNN", recurrent}, Row{"Concat", concat},      Row{"Gemm", gemm},
};

/// Ops of ONNX Runtime's own that take no scratch in any recorded session.
constexpr std::array<std::string_view, 4> without_scratch{"FusedMatMul", "SkipLayerNormalization", "QuickGelu",
                                                          "BiasSoftmax"};

}  // namespace

Scratch scratch_of(const At& at, const ScratchContext& context) {
  const std::string& op = at.node.op_type;
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.op == op; });
  if (row != rows.end()) return row->scratch(at, context);
  const bool own = !at.node.domain.empty() && at.node.domain != "ai.onnx";
  if (own && std::find(without_scratch.begin(), without_scratch.end(), op) == without_scratch.end())
    return bounded(at, "scratch of this op of ONNX Runtime's own is bounded, not counted");
  return {};
}

}  // namespace memplan::ort
