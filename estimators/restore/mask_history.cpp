#include "estimators/restore/mask_history.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "estimators/facts/libraries.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// The function that the line calls which builds masks only because it is traced; nullptr for none.
const LibraryFact* mask_builder(std::string_view source) {
  const auto& known = library_facts("masks_while_traced");
  const auto found = std::find_if(known.begin(), known.end(), [&](const LibraryFact& f) {
    return source.find(f.subject + "(") != std::string_view::npos;
  });
  return found == known.end() ? nullptr : &*found;
}

/// Eager code looks at the values of the mask of tokens and makes no mask where no token is padding
/// (transformers' masking_utils.py: _ignore_causal_mask_sdpa, _ignore_bidirectional_mask_sdpa); traced code cannot.
bool tells_tokens(const TapeValue& input) { return input.sizes.size() == 2 && !is_floating(input.dtype); }

/// `attention_mask = torch.ones(batch, tokens)`, as models make it that are given none.
bool marks_all_tokens(const Call& call) {
  const auto* sizes =
      call.op == "aten::ones" && !call.args.empty() ? std::get_if<Arg::List>(&call.args[0].value) : nullptr;
  return sizes && sizes->size() == 2;
}

/// x of `x op number`.
std::optional<std::int64_t> number(const Call& call) {
  const auto* n = call.args.size() > 1 ? std::get_if<std::int64_t>(&call.args[1].value) : nullptr;
  return n ? std::optional(*n) : std::nullopt;
}

/// Tokens that are numbered on the way to a mask.
std::int64_t tokens(const Call& call) {
  std::int64_t most = 0;
  if (call.op.starts_with("aten::arange"))
    for (const Arg& a : call.args)
      if (const auto* n = std::get_if<std::int64_t>(&a.value)) most = std::max(most, *n);
  return most;
}

/// What masks are made of: numbers of tokens, how they compare, and views of them. The biases that tell how far apart
/// tokens are take products and powers.
bool makes_masks(std::string_view op) {
  static const std::set<std::string_view> ops{"aten::arange",
                                              "aten::ones",
                                              "aten::zeros",
                                              "aten::full",
                                              "aten::empty.memory_format",
                                              "aten::scalar_tensor",
                                              "aten::new_ones",
                                              "aten::new_zeros",
                                              "aten::new_full",
                                              "aten::tril",
                                              "aten::triu",
                                              "aten::le",
                                              "aten::lt",
                                              "aten::ge",
                                              "aten::gt",
                                              "aten::eq",
                                              "aten::ne",
                                              "aten::abs",
                                              "aten::sub",
                                              "aten::floor_divide",
                                              "aten::bitwise_and",
                                              "aten::bitwise_or",
                                              "aten::bitwise_not",
                                              "aten::logical_and",
                                              "aten::logical_or",
                                              "aten::logical_not",
                                              "aten::index",
                                              "aten::where",
                                              "aten::masked_fill",
                                              "aten::_to_copy",
                                              "aten::to",
                                              "aten::clone",
                                              "aten::unsqueeze",
                                              "aten::expand",
                                              "aten::view",
                                              "aten::reshape",
                                              "memplan::index_slice",
                                              "aten::slice",
                                              "aten::select",
                                              "aten::alias",
                                              "aten::sym_size",
                                              "aten::lift_fresh_copy"};
  const std::string_view base = op.substr(0, op.find('.'));
  return ops.contains(op) || ops.contains(base);
}

/// What an exporter's optimizer worked out of both queries and keys may be what makes a mask causal.
bool may_hide_comparison(const Call& call) {
  const auto* sizes = call.op == "aten::empty.memory_format" && !call.args.empty()
                          ? std::get_if<Arg::List>(&call.args[0].value)
                          : nullptr;
  return sizes && std::ranges::count_if(*sizes, [](const Arg& a) {
                    const auto* n = std::get_if<std::int64_t>(&a.value);
                    return !n || *n > 1;
                  }) > 1;
}

}  // namespace

std::optional<std::pair<std::int64_t, std::int64_t>> sizes_of_folded_mask(const Call& call) {
  if (call.op != "aten::empty.memory_format" || call.args.empty()) return std::nullopt;
  const auto* sizes = std::get_if<Arg::List>(&call.args[0].value);
  const auto of_bools = [](const auto& kwarg) {
    const auto* dtype = std::get_if<DType>(&kwarg.second.value);
    return kwarg.first == "dtype" && dtype && *dtype == DType::boolean;
  };
  constexpr std::size_t dims = 4;  // batch, heads (one), queries, keys
  if (!sizes || sizes->size() != dims || std::ranges::none_of(call.kwargs, of_bools)) return std::nullopt;
  const auto size = [&](std::size_t d) {
    const auto* n = std::get_if<std::int64_t>(&(*sizes)[d].value);
    return n ? *n : 0;
  };
  if (size(1) != 1 || size(2) <= 0 || size(3) <= 0) return std::nullopt;
  return std::pair{size(2), size(3)};
}

bool in_library_of_masks(std::string_view source) {
  const auto& known = library_facts("masks_while_traced");
  return std::any_of(known.begin(), known.end(), [&](const LibraryFact& f) { return is_in_library(f, source); });
}

MaskHistory::MaskHistory(const Tape& tape) : tape_(tape), maker_(makers_of(tape)) { note_builders(); }

void MaskHistory::History::add(const History& o) {
  closed = closed || o.closed, built = built || o.built, causal = causal || o.causal;
  from_input = from_input || o.from_input;
  if (o.window) window = std::min(*o.window, window.value_or(*o.window));
  length = std::max(length, o.length);
}

const Call* MaskHistory::made(const Call& call, std::size_t arg) const {
  const auto* id = arg < call.args.size() ? std::get_if<ValueId>(&call.args[arg].value) : nullptr;
  const std::int32_t i = id ? maker(*id) : -1;
  return i < 0 ? nullptr : &tape_.calls[static_cast<std::size_t>(i)];
}

/// How far tokens see each other, where the call is what makes them see no farther (masking_utils.py:
/// sliding_window_overlay, sliding_window_bidirectional_overlay, chunked_overlay). 0: it does, but how far is not
/// told.
std::optional<std::int64_t> MaskHistory::reach(const Call& call) const {
  if (call.op == "aten::gt.Tensor" || call.op == "aten::lt.Tensor") {
    const Call* less = made(call, 1);
    return less && less->op == "aten::sub.Tensor" ? number(*less).value_or(0) : 0;
  }
  const Call* of = call.op == "aten::le.Scalar" ? made(call, 0) : nullptr;
  if (call.op == "aten::floor_divide" || (of && of->op == "aten::abs")) return number(call).value_or(0);
  return std::nullopt;
}

MaskHistory::History MaskHistory::of_source(ValueId id) const {
  History out;
  if (!id.valid()) return out;
  const TapeValue& v = tape_.values[static_cast<std::size_t>(id.index)];
  out.from_input = v.kind == ValueKind::user_input;
  out.closed = v.kind == ValueKind::parameter || (out.from_input && !tells_tokens(v));
  return out;
}

/// Functions of the library go by other names as well: `make = create_causal_mask if decoder else …`. What they do
/// shows which they are (masking_utils.py: sdpa_mask): they number samples, heads (one), queries and keys, and
/// compare the numbers. So does a line that numbers tokens and makes nothing but a mask of them, and one that counts
/// sequences (find_packed_sequence_indices) and compares their numbers and those of tokens.
void MaskHistory::note_builders() {
  struct Done {
    int numbered = 0;
    bool one = false, compared = false, only_masks = true, counted = false, alike = false;
  };
  std::map<std::pair<std::int32_t, std::string_view>, Done> lines;
  for (const Call& call : tape_.calls) {
    if (!in_library_of_masks(call.source)) continue;
    Done& line = lines[{call.scope, call.source}];
    if (call.op.starts_with("aten::arange")) {
      ++line.numbered;
      line.one = line.one || (call.args.size() == 1 && tokens(call) == 1);
    }
    line.only_masks = line.only_masks && makes_masks(call.op) && !may_hide_comparison(call);
    line.compared = line.compared || call.op == "aten::ge.Scalar" || call.op == "aten::le.Tensor";
    line.counted = line.counted || call.op == "aten::cumsum";
    line.alike = line.alike || call.op == "aten::eq.Tensor";
  }
  constexpr int dimensions = 4;
  for (const auto& [line, done] : lines)
    if ((done.numbered >= dimensions && done.one && done.compared) || (done.numbered > 0 && done.only_masks) ||
        (done.counted && done.alike && done.compared))
      builders_.insert({line.first, std::string(line.second)});
}

bool MaskHistory::builds_mask(const Call& call) const {
  return mask_builder(call.source) || (!builders_.empty() && builders_.contains({call.scope, call.source}));
}

MaskHistory::History MaskHistory::of_value(ValueId id) {
  const std::int32_t i = maker(id);
  while (i >= static_cast<std::int32_t>(histories_.size()))
    histories_.push_back(of_call(tape_.calls[histories_.size()]));
  return i >= 0 ? histories_[static_cast<std::size_t>(i)] : of_source(id);
}

/// Of a call whose arguments' histories are known.
MaskHistory::History MaskHistory::of_call(const Call& call) const {
  History out;
  if (call.op.starts_with("aten::sym_size")) return out;
  for_each_value(call, [&](ValueId v) {
    const std::int32_t i = maker(v);
    if (i < static_cast<std::int32_t>(histories_.size()))
      out.add(i < 0 ? of_source(v) : histories_[static_cast<std::size_t>(i)]);
  });
  // The file's code may tell the function to make the mask in any case (`allow_is_causal_skip=False`).
  out.closed = out.closed || fact_of_file("keeps_masks", call.source);
  out.from_input = out.from_input || (marks_all_tokens(call) && !builds_mask(call));
  if (out.closed) return out;
  const LibraryFact* builder = mask_builder(call.source);
  out.built = out.built || builds_mask(call);
  // A mask of queries and other keys looks at all of them; one of as many could be causal.
  if (const auto sizes = sizes_of_folded_mask(call); sizes && in_library_of_masks(call.source))
    out.built = out.built || sizes->first != sizes->second;
  // An exporter's optimizer may have folded the comparison.
  out.causal = out.causal || (builder && builder->subject.find("causal") != std::string::npos) ||
               call.op == "aten::le.Tensor" || call.op == "aten::tril" || call.op == "aten::triu";
  if (const auto r = reach(call)) {
    out.window = std::min(*r, out.window.value_or(*r));
    // The numbers of the tokens may be folded.
    if (!call.known_shapes.empty() && !call.known_shapes[0].second.empty())
      out.length = std::max(out.length, call.known_shapes[0].second.back());
  }
  out.length = std::max(out.length, tokens(call));
  return out;
}

}  // namespace memplan
