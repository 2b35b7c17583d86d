// Ops that are one for PyTorch, which its ONNX exporter takes apart with the decompositions of torch/_refs and
// torch/_decomp (create_onnx_friendly_decomposition_table): one kernel on CUDA, and one node for autograd.
#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "estimators/restore/passes.h"
#include "estimators/restore/statement.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

using KnownShape = std::pair<DType, std::vector<std::int64_t>>;

/// The op in the place of the calls [first, end): `call` has its arguments, and the result of the last of them.
struct Whole {
  std::size_t end = 0;
  Call call;
};

class OneLine {
 public:
  OneLine(const Tape& tape, const std::vector<int>& reads, std::size_t first)
      : tape_(tape), reads_(reads), first_(first), end_(first + 1) {
    const Call& c = tape.calls[first];
    while (end_ < tape.calls.size() && tape.calls[end_].scope == c.scope &&
           (tape.calls[end_].source == c.source || tape.calls[end_].op == "memplan::to_default_dtype"))
      ++end_;
  }

  /// The call so many behind the first one, where it is of this line and such an op with one result.
  const Call* at(std::size_t i, std::string_view op) const {
    const std::size_t n = first_ + i;
    return n < end_ && tape_.calls[n].op == op && tape_.calls[n].outputs.size() == 1 ? &tape_.calls[n] : nullptr;
  }
  /// Nobody but the call reads it.
  bool only_read_by(ValueId id, const Call& call) const {
    int here = 0;
    for_each_value(call, [&](ValueId v) { here += v == id; });
    return here > 0 && here == reads_[static_cast<std::size_t>(id.index)];
  }
  /// With the result, the place and the sizes of its last call.
  Whole whole(std::size_t calls, std::string_view op, std::vector<Arg> args) const {
    Whole w{first_ + calls, tape_.calls[first_ + calls - 1]};
    w.call.op = op;
    w.call.args = std::move(args);
    w.call.kwargs.clear();
    return w;
  }
  /// Type and sizes of what was there before the line, where they are known.
  const KnownShape* known(ValueId id) const {
    for (std::size_t i = first_; i-- > 0;)
      for (std::size_t o = 0; o < tape_.calls[i].outputs.size(); ++o)
        if (tape_.calls[i].outputs[o] == id)
          return o < tape_.calls[i].known_shapes.size() ? &tape_.calls[i].known_shapes[o] : nullptr;
    return nullptr;
  }
  std::span<const Call> calls() const { return std::span(tape_.calls).subspan(first_, end_ - first_); }
  int reads_of(ValueId id) const { return reads_[static_cast<std::size_t>(id.index)]; }
  bool says(std::string_view text) const { return tape_.calls[first_].source.find(text) != std::string::npos; }

 private:
  const Tape& tape_;
  const std::vector<int>& reads_;
  std::size_t first_, end_;
};

/// prims.var [-> prims.broadcast_in_dim, which keeps the dimensions] [-> sqrt]: torch.var and torch.std. Where the text
/// of a file is not complete, its nodes stand for the second: a reshape and an expand.
std::optional<Whole> variance_at(const OneLine& line) {
  const bool by_nodes = line.at(0, "aten::var.correction") != nullptr;
  const Call* var = line.at(0, by_nodes ? "aten::var.correction" : "prims::var");
  if (!var || var->args.size() < 2) return std::nullopt;
  std::size_t n = 1;
  const Call* last = var;
  bool keepdim = false;
  const auto follows = [&](std::string_view op) {
    const Call* next = line.at(n, op);
    if (!next || !line.only_read_by(last->outputs[0], *next)) return false;
    last = next, ++n;
    return true;
  };
  if (by_nodes)
    keepdim = follows("aten::reshape") && follows("aten::expand");
  else
    keepdim = follows("prims::broadcast_in_dim");
  const bool root = line.says("std(") && follows("aten::sqrt");
  if (by_nodes && (!root || n == 3)) return std::nullopt;
  Whole w = line.whole(n, root ? "aten::std.correction" : "aten::var.correction", {var->args[0], var->args[1]});
  if (by_nodes) w.call.kwargs = var->kwargs;
  if (var->args.size() > 2) w.call.kwargs.emplace_back("correction", var->args[2]);
  std::erase_if(w.call.kwargs, [](const auto& k) { return k.first == "keepdim"; });
  w.call.kwargs.emplace_back("keepdim", Arg{keepdim});
  return w;
}

std::optional<Whole> nan_to_num_at(const OneLine& line) {
  constexpr std::string_view ops[] = {"aten::isnan",    "aten::where.ScalarSelf",
                                      "aten::isneginf", "aten::where.ScalarSelf",
                                      "aten::isposinf", "aten::where.ScalarSelf"};
  for (std::size_t i = 0; i < std::size(ops); ++i)
    if (!line.at(i, ops[i])) return std::nullopt;
  const ValueId x = value_at(*line.at(0, ops[0]), 0);
  if (!x.valid() || value_at(*line.at(2, ops[2]), 0) != x || value_at(*line.at(4, ops[4]), 0) != x) return std::nullopt;
  return line.whole(std::size(ops), "aten::nan_to_num", {{x}});
}

/// Both norms (one, where both sides are the same), their bounds, quotients, and the sum of the products.
std::optional<Whole> cosine_similarity_at(const OneLine& line) {
  const Call* norm = line.at(0, "aten::linalg_vector_norm");
  if (!norm || norm->args.size() < 3) return std::nullopt;
  const auto* dims = std::get_if<Arg::List>(&norm->args[2].value);
  if (!dims || dims->size() != 1) return std::nullopt;
  ValueId left = value_at(*norm, 0), right = left;
  std::size_t n = 1;
  const auto between = [&](std::size_t i) {
    return std::ranges::any_of(
        std::initializer_list<std::string_view>{"aten::linalg_vector_norm", "aten::clamp", "aten::clamp_min.Tensor",
                                                "aten::clone", "aten::dropout", "aten::div.Tensor", "aten::mul.Tensor"},
        [&](std::string_view op) { return line.at(i, op) != nullptr; });
  };
  // F.normalize has one norm after the other, with other bounds and no copies of them.
  const Call* bound = line.at(1, "aten::linalg_vector_norm") ? line.at(2, "aten::clamp") : nullptr;
  const auto* least = bound && bound->args.size() > 1 ? std::get_if<double>(&bound->args[1].value) : nullptr;
  bool copied = line.says("cosine_similarity(") || (least && *least > 0.99e-8 && *least < 1.01e-8);
  for (; between(n); ++n) {
    if (const Call* other = line.at(n, "aten::linalg_vector_norm")) right = value_at(*other, 0);
    copied = copied || (line.at(n, "aten::clamp_min.Tensor") && line.at(n - 1, "aten::clone"));
  }
  if (!copied || n < 4 || !line.at(n, "aten::sum.dim_IntList") || !line.at(n - 1, "aten::mul.Tensor") ||
      !left.valid() || !right.valid())
    return std::nullopt;
  return line.whole(n + 1, "aten::cosine_similarity", {{left}, {right}, (*dims)[0]});
}

/// native/Dropout.cpp: noise of one element per feature map, `x * noise.bernoulli_(1 - p).div_(1 - p)`.
std::optional<Whole> feature_dropout_at(const OneLine& line, bool training) {
  const Call *noise = line.at(0, "aten::new_empty"), *draw = line.at(1, "aten::bernoulli.p");
  if (!noise || !draw || draw->args.size() < 2) return std::nullopt;
  const auto* kept = std::get_if<double>(&draw->args[1].value);
  std::size_t n = 2;
  if (line.at(n, "memplan::to_default_dtype")) ++n;
  const Call *scaled = line.at(n, "aten::div.Scalar"), *product = line.at(n + 1, "aten::mul.Tensor");
  if (!kept || !scaled || !product || value_at(*product, 1) != scaled->outputs[0] ||
      value_at(*product, 0) != value_at(*noise, 0))
    return std::nullopt;
  return line.whole(n + 2, "aten::feature_dropout", {product->args[0], {1 - *kept}, {training}});
}

/// Losses of torch/_refs/nn/functional.
struct TakenApartLoss {
  std::string_view op;
  std::vector<std::string_view> calls;  ///< the first two are those of `target - input`, or of `-input * target`
  std::size_t threshold;                ///< the call whose last argument is beta or delta; 0: none
  std::string_view last;                ///< how Python writes the last of the calls
};

const std::vector<TakenApartLoss>& losses_taken_apart() {
  static const std::vector<TakenApartLoss> all{
      {"aten::smooth_l1_loss",
       {"aten::sub.Tensor", "aten::abs", "aten::lt.Scalar", "aten::pow.Tensor_Scalar", "aten::mul.Tensor",
        "aten::div.Tensor", "aten::sub.Tensor", "aten::where.self"},
       2,
       "where("},
      {"aten::huber_loss",
       {"aten::sub.Tensor", "aten::abs", "aten::lt.Scalar", "aten::mul.Tensor", "aten::mul.Tensor", "aten::sub.Tensor",
        "aten::mul.Tensor", "aten::where.self"},
       2,
       "where("},
      {"aten::soft_margin_loss", {"aten::neg", "aten::mul.Tensor", "aten::exp", "aten::log1p"}, 0, "log1p("}};
  return all;
}

std::optional<Whole> loss_at(const OneLine& line) {
  for (const TakenApartLoss& loss : losses_taken_apart()) {
    std::vector<const Call*> calls;
    while (calls.size() < loss.calls.size())
      if (const Call* next = line.at(calls.size(), loss.calls[calls.size()]))
        calls.push_back(next);
      else
        break;
    const std::size_t n = calls.size();
    if (n < loss.calls.size()) continue;
    // A program that writes the loss out says so where its line is known.
    if (line.says(loss.last)) return std::nullopt;
    const ValueId input = value_at(*calls[0], 0), target = value_at(*calls[loss.threshold ? 0 : 1], 1);
    if (!input.valid() || !target.valid() || value_at(*calls[1], 0) != calls[0]->outputs[0]) return std::nullopt;
    const Call *mean = line.at(n, "aten::mean"), *sum = line.at(n, "aten::sum"), *reduced = mean ? mean : sum;
    const bool reduces = reduced && line.only_read_by(calls.back()->outputs[0], *reduced);
    std::vector<Arg> args{{input}, {target}, {std::int64_t{!reduces ? 0 : mean ? 1 : 2}}};
    if (loss.threshold) args.push_back(calls[loss.threshold]->args.back());
    return line.whole(reduces ? n + 1 : n, loss.op, std::move(args));
  }
  return std::nullopt;
}

/// `F.adaptive_avg_pool2d` of a line that does nothing else; empty for all others.
std::string_view lone_adaptive_pool(std::string_view source) {
  constexpr std::string_view stem = "adaptive_avg_pool";
  if (source.find(stem) == source.npos) return {};
  std::string_view value = parse_statement(source).value;
  constexpr std::string_view keyword = "return ";
  if (value.starts_with(keyword)) value.remove_prefix(keyword.size());
  const auto open = value.find('(');
  if (open == value.npos || open < stem.size() + 2) return {};
  const std::string_view function = value.substr(0, open), name = function.substr(function.rfind('.') + 1);
  if (!name.starts_with(stem) || name.size() != stem.size() + 2 || !name.ends_with('d')) return {};
  if (!std::ranges::all_of(function, in_path)) return {};
  const auto close = closing_bracket(value, open);
  return close != value.npos && value.find_last_not_of(" \t") == close ? name : std::string_view();
}

bool begins_with(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& first) {
  return sizes.size() >= first.size() && std::equal(first.begin(), first.end(), sizes.begin());
}

/// The one tensor from before the line that may be pooled to these samples and channels: tables of indices, of which an
/// exporter has one for equal windows, are integers. Invalid where there is none, or several.
ValueId pooled_image(const OneLine& line, const std::vector<std::int64_t>& samples) {
  std::unordered_set<std::int32_t> inner;
  struct Image {
    ValueId id;
    bool one = true;
  };
  Image known, unknown;
  for (const Call& c : line.calls()) {
    for_each_value(c, [&](ValueId id) {
      if (!id.valid() || inner.contains(id.index)) return;
      const KnownShape* shape = line.known(id);
      if (shape && !is_floating(shape->first)) return;
      Image& image = shape ? known : unknown;
      image.one = image.one && (!image.id.valid() || image.id == id) && (!shape || begins_with(shape->second, samples));
      image.id = id;
    });
    for (const ValueId id : c.outputs) inner.insert(id.index);
  }
  const Image& image = known.id.valid() ? known : unknown;
  return image.one ? image.id : ValueId{};
}

/// Whether something that the line makes of the image is read by others than the line.
bool image_is_kept(const OneLine& line, ValueId image) {
  std::unordered_map<std::int32_t, int> of_image{{image.index, 0}};
  for (const Call& c : line.calls()) {
    bool reads = false;
    for_each_value(c, [&](ValueId id) {
      if (const auto it = of_image.find(id.index); it != of_image.end()) reads = true, --it->second;
    });
    if (reads)
      for (const ValueId id : c.outputs) of_image[id.index] = line.reads_of(id);
  }
  of_image.erase(image.index);
  of_image.erase(line.calls().back().outputs[0].index);
  return !std::ranges::all_of(of_image, [](const auto& v) { return v.second == 0; });
}

/// torch/_decomp's adaptive_avg_pool2d: a mean, an average pool, or what it gathers of all windows and adds up
/// (adaptive_avg_pool2d in decompositions.py), which depends on the sizes.
std::optional<Whole> adaptive_pool_at(const OneLine& line) {
  const auto calls = line.calls();
  const std::string_view name = lone_adaptive_pool(calls[0].source);
  if (name.empty() || calls[0].op.find("adaptive") != std::string::npos) return std::nullopt;
  const Call& last = calls.back();
  const std::size_t dims = static_cast<std::size_t>(name[name.size() - 2] - '0');
  if (last.outputs.size() != 1 || last.known_shapes.size() != 1 || last.known_shapes[0].second.size() < dims ||
      dims > 3)
    return std::nullopt;
  const auto& sizes = last.known_shapes[0].second;
  const ValueId image = pooled_image(line, {sizes.begin(), sizes.end() - static_cast<std::ptrdiff_t>(dims)});
  if (!image.valid() || image_is_kept(line, image)) return std::nullopt;
  Arg::List out;
  for (std::size_t d = sizes.size() - dims; d < sizes.size(); ++d) out.push_back({sizes[d]});
  return line.whole(calls.size(), "aten::" + std::string(name), {{image}, {std::move(out)}});
}

/// `x.new_zeros(n, d).index_add_(0, index, x)`, which the exporter writes as index_put with accumulate=True: it sorts
/// no indices, and writes into the zeros where nobody else reads them. Zeros that were merged with others are copied.
/// `zeros`: by value, what a functional file makes of zeros; other files have index_put only where the program has it.
std::optional<Whole> index_add_at(const OneLine& line, const std::vector<bool>& zeros) {
  const Call* put = line.at(0, "aten::index_put");
  if (!put || put->args.size() < 4) return std::nullopt;
  const auto* indices = std::get_if<Arg::List>(&put->args[1].value);
  const auto* accumulate = std::get_if<bool>(&put->args[3].value);
  const ValueId into = value_at(*put, 0), source = value_at(*put, 2);
  if (!indices || indices->empty() || !std::holds_alternative<ValueId>(indices->back().value) ||
      !std::all_of(indices->begin(), indices->end() - 1, [](const Arg& all) { return all.is_none(); }) || !accumulate ||
      !*accumulate || !into.valid() || !source.valid() || !zeros[static_cast<std::size_t>(into.index)])
    return std::nullopt;
  const bool own = line.reads_of(into) == 1;
  const auto dim = static_cast<std::int64_t>(indices->size()) - 1;
  return line.whole(1, own ? "aten::index_add_" : "aten::index_add",
                    {put->args[0], {dim}, indices->back(), put->args[2]});
}

bool makes_zeros(std::string_view op) {
  return op == "aten::zeros" || op == "aten::new_zeros" || op == "aten::zeros_like" || op == "aten::full";
}

/// What the ops above begin with.
bool may_begin(const Tape& tape, std::size_t i) {
  const std::string_view op = tape.calls[i].op,
                         next = i + 1 < tape.calls.size() ? std::string_view(tape.calls[i + 1].op) : "";
  return op == "prims::var" || op == "aten::var.correction" || op == "aten::isnan" ||
         op == "aten::linalg_vector_norm" || op == "aten::new_empty" || op == "aten::index_put" ||
         (op == "aten::sub.Tensor" && next == "aten::abs") || (op == "aten::neg" && next == "aten::mul.Tensor") ||
         tape.calls[i].source.find("adaptive_avg_pool") != std::string::npos;
}

std::optional<Whole> whole_at(const Tape& tape, const std::vector<int>& reads, const std::vector<bool>& zeros,
                              std::size_t first, bool training) {
  const OneLine line(tape, reads, first);
  if (auto w = index_add_at(line, zeros)) return w;
  if (auto w = variance_at(line)) return w;
  if (auto w = nan_to_num_at(line)) return w;
  if (auto w = feature_dropout_at(line, training)) return w;
  if (auto w = loss_at(line)) return w;
  if (auto w = adaptive_pool_at(line)) return w;
  return cosine_similarity_at(line);
}

/// Calls among [first, end) but the last one that the program runs beside the op, since others read what they make, or
/// it is returned: an exporter merged `(q - y).abs()` of a program with the same steps of its loss. In order.
std::vector<std::size_t> read_elsewhere(const Tape& tape, const std::vector<int>& reads, std::size_t first,
                                        std::size_t end) {
  std::unordered_map<std::int32_t, int> open;  // reads by calls outside, by value
  for (std::size_t k = first; k + 1 < end; ++k)
    for (const ValueId id : tape.calls[k].outputs)
      if (id.valid()) open[id.index] += reads[static_cast<std::size_t>(id.index)];
  for (std::size_t k = first; k < end; ++k)
    for_each_value(tape.calls[k], [&](ValueId id) {
      if (const auto it = open.find(id.index); it != open.end()) --it->second;
    });
  std::vector<std::size_t> kept;
  for (std::size_t k = end - 1; k-- > first;) {
    const Call& call = tape.calls[k];
    if (std::ranges::none_of(call.outputs, [&](ValueId id) { return id.valid() && open[id.index] > 0; })) continue;
    kept.insert(kept.begin(), k);
    for_each_value(call, [&](ValueId id) {
      if (const auto it = open.find(id.index); it != open.end()) ++it->second;
    });
  }
  return kept;
}

}  // namespace

void recover_whole_ops(Tape& tape, const TrainingSetup& setup) {
  const bool training = setup.mode == Mode::training;
  std::vector<std::pair<std::size_t, Whole>> found;
  std::optional<std::vector<int>> reads;
  std::vector<bool> zeros(tape.values.size(), false);  // by value
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    if (tape.exported.functional && makes_zeros(tape.calls[i].op))
      for (const ValueId id : tape.calls[i].outputs)
        if (id.valid()) zeros[static_cast<std::size_t>(id.index)] = true;
    if (!may_begin(tape, i)) continue;
    if (!reads) reads = count_reads(tape);
    if (auto w = whole_at(tape, *reads, zeros, i, training)) {
      const std::size_t end = w->end;
      found.emplace_back(i, std::move(*w));
      i = end - 1;
    }
  }
  if (found.empty()) return;
  std::vector<Call> calls;
  std::size_t i = 0;
  for (auto& [first, whole] : found) {
    std::move(tape.calls.begin() + static_cast<std::ptrdiff_t>(i),
              tape.calls.begin() + static_cast<std::ptrdiff_t>(first), std::back_inserter(calls));
    for (const std::size_t k : read_elsewhere(tape, *reads, first, whole.end))
      calls.push_back(std::move(tape.calls[k]));
    tape.recovered.push_back(
        {whole.call.op, "the calls that the exporter takes it apart into", 1, Evidence::told_by_pattern, About::op});
    calls.push_back(std::move(whole.call));
    i = whole.end;
  }
  std::move(tape.calls.begin() + static_cast<std::ptrdiff_t>(i), tape.calls.end(), std::back_inserter(calls));
  tape.calls = std::move(calls);
}

}  // namespace memplan
