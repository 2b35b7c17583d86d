#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "estimators/facts/libraries.h"
#include "estimators/restore/passes.h"
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

/// The line stands in a library that has such functions.
bool in_such_library(std::string_view source) {
  const auto& known = library_facts("masks_while_traced");
  return std::any_of(known.begin(), known.end(),
                     [&](const LibraryFact& f) { return source.starts_with(f.library + "/"); });
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

class Masks {
 public:
  explicit Masks(Tape& tape)
      : tape_(tape),
        maker_(tape.values.size(), -1),
        candidate_(tape.calls.size(), false),
        marked_(tape.calls.size(), false) {
    for (std::size_t i = 0; i < tape.calls.size(); ++i)
      for (ValueId id : tape.calls[i].outputs)
        if (id.valid()) maker_[static_cast<std::size_t>(id.index)] = static_cast<std::int32_t>(i);
    find_builders();
  }

  void run() {
    std::int64_t masks = 0, full = 0, heads = 0;
    for (Call& call : tape_.calls) {
      if (call.op != "aten::scaled_dot_product_attention" || !in_such_library(call.source) || call.args.size() < 4)
        continue;
      const auto* mask = std::get_if<ValueId>(&call.args[3].value);
      if (!mask) continue;
      told_by_input_ = false;
      const auto causal = eager_says(*mask);
      if (!causal) continue;
      full += told_by_input_;
      call.args[3] = {};
      if (call.args.size() < 5) call.args.push_back({0.0});
      if (call.args.size() < 6)
        call.args.push_back({*causal});
      else
        call.args[5] = {*causal};
      ++masks;
      const ValueId k = unrepeated(call.args[1]), v = unrepeated(call.args[2]);
      if (!k.valid() || !v.valid()) continue;
      call.args[1] = {k};
      call.args[2] = {v};
      call.kwargs.emplace_back("enable_gqa", Arg{true});
      ++heads;
    }
    const std::int64_t added = drop_added();
    if (masks == 0 && added == 0) return;
    remove_unused_calls(tape_, [&](const Call&, std::size_t i) { return candidate_[i]; });
    if (masks)
      tape_.recovered.push_back({"attention without a mask", "masks that transformers builds only while it is traced",
                                 masks, Evidence::told_by_source_line, About::mask});
    if (added)
      tape_.recovered.push_back({"attention without a mask", "masks that transformers adds only while it is traced",
                                 added, Evidence::told_by_source_line, About::mask});
    if (full)
      tape_.recovered.push_back({"attention without a mask",
                                 "a batch whose samples are all as long as it is: no padding", full, Evidence::assumed,
                                 About::mask});
    if (heads)
      tape_.recovered.push_back(
          {"enable_gqa", "repeated key and value heads", heads, Evidence::told_by_source_line, About::mask});
  }

 private:
  /// Attention that is spelled out adds its mask where there is one: `if attention_mask is not None: scores + mask`. Of
  /// masks that look both ways eager code makes none for a full batch.
  std::int64_t drop_added() {
    std::int64_t added = 0;
    std::map<std::int32_t, ValueId> instead;
    histories_.clear();
    marked_.assign(marked_.size(), false);
    for (std::size_t i = 0; i < tape_.calls.size(); ++i) {
      Call& call = tape_.calls[i];
      if (!instead.empty())
        replace_values(call, [&](ValueId id) {
          const auto it = instead.find(id.index);
          return Arg{it == instead.end() ? id : it->second};
        });
      if ((call.op != "aten::add.Tensor" && call.op != "aten::add_.Tensor") || call.args.size() != 2 ||
          call.outputs.size() != 1 || builds(call))
        continue;
      const auto *scores = std::get_if<ValueId>(&call.args[0].value), *mask = std::get_if<ValueId>(&call.args[1].value);
      if (!scores || !mask || maker(*mask) < 0) continue;
      built_by_name_ = false;
      const auto causal = eager_says(*mask);
      if (!causal || *causal || !built_by_name_) continue;
      instead[call.outputs[0].index] = *scores;
      candidate_[i] = true;
      ++added;
    }
    for (ValueId& id : tape_.outputs)
      if (const auto it = instead.find(id.index); it != instead.end()) id = it->second;
    return added;
  }

  /// Lines of such a library that number tokens and make nothing but a mask of them call one of its functions by
  /// another name: `mask_function = create_causal_mask if … else …`.
  void find_builders() {
    std::map<std::pair<std::int32_t, std::string_view>, std::pair<bool, bool>> lines;  // only masks, numbers tokens
    for (const Call& c : tape_.calls) {
      if (!in_such_library(c.source)) continue;
      auto& [only, tokens] = lines.try_emplace({c.scope, c.source}, true, false).first->second;
      only = only && makes_masks(c.op) && !may_hide_comparison(c);
      tokens = tokens || c.op.starts_with("aten::arange");
    }
    for (const auto& [line, made] : lines)
      if (made.first && made.second) builders_.insert(line);
  }

  bool builds(const Call& call) const {
    return mask_builder(call.source) || builders_.contains({call.scope, call.source});
  }

  std::int32_t maker(ValueId id) const { return id.valid() ? maker_[static_cast<std::size_t>(id.index)] : -1; }

  /// Eager code looks at the values of the mask of tokens and makes no mask where no token is padding
  /// (transformers' masking_utils.py: _ignore_causal_mask_sdpa, _ignore_bidirectional_mask_sdpa); traced code cannot.
  static bool tells_tokens(const TapeValue& input) { return input.sizes.size() == 2 && !is_floating(input.dtype); }

  /// x of `x op number`.
  std::optional<std::int64_t> number(const Call& call) const {
    const auto* n = call.args.size() > 1 ? std::get_if<std::int64_t>(&call.args[1].value) : nullptr;
    return n ? std::optional(*n) : std::nullopt;
  }

  /// The call that makes an argument.
  const Call* made(const Call& call, std::size_t arg) const {
    const auto* id = arg < call.args.size() ? std::get_if<ValueId>(&call.args[arg].value) : nullptr;
    const std::int32_t i = id ? maker(*id) : -1;
    return i < 0 ? nullptr : &tape_.calls[static_cast<std::size_t>(i)];
  }

  /// How far tokens see each other, where the call is what makes them see no farther (masking_utils.py:
  /// sliding_window_overlay, sliding_window_bidirectional_overlay, chunked_overlay). 0: it does, but how far is not
  /// told.
  std::optional<std::int64_t> reach(const Call& call) const {
    if (call.op == "aten::gt.Tensor" || call.op == "aten::lt.Tensor") {
      const Call* less = made(call, 1);
      return less && less->op == "aten::sub.Tensor" ? number(*less).value_or(0) : 0;
    }
    const Call* of = call.op == "aten::le.Scalar" ? made(call, 0) : nullptr;
    if (call.op == "aten::floor_divide" || (of && of->op == "aten::abs")) return number(call).value_or(0);
    return std::nullopt;
  }

  /// Tokens that are numbered on the way to a mask.
  static std::int64_t tokens(const Call& call) {
    std::int64_t most = 0;
    if (call.op.starts_with("aten::arange"))
      for (const Arg& a : call.args)
        if (const auto* n = std::get_if<std::int64_t>(&a.value)) most = std::max(most, *n);
    return most;
  }

  /// What all calls say together that a call's results rest on, itself included.
  struct History {
    bool closed = false;  ///< it rests on a parameter, or on an input that no tokens tell: no mask
    bool built = false, causal = false, from_input = false;
    std::optional<std::int64_t> window;
    std::int64_t length = 0;

    void add(const History& o) {
      closed = closed || o.closed, built = built || o.built, causal = causal || o.causal;
      from_input = from_input || o.from_input;
      if (o.window) window = std::min(*o.window, window.value_or(*o.window));
      length = std::max(length, o.length);
    }
  };

  History of_source(ValueId id) const {
    History out;
    if (!id.valid()) return out;
    const TapeValue& v = tape_.values[static_cast<std::size_t>(id.index)];
    out.from_input = v.kind == ValueKind::user_input;
    out.closed = v.kind == ValueKind::parameter || (out.from_input && !tells_tokens(v));
    return out;
  }

  /// Calls are in order, so that each is looked at once, however many masks there are.
  History of_value(ValueId id) {
    const std::int32_t i = maker(id);
    while (i >= static_cast<std::int32_t>(histories_.size()))
      histories_.push_back(of_call(tape_.calls[histories_.size()]));
    return i >= 0 ? histories_[static_cast<std::size_t>(i)] : of_source(id);
  }

  /// Of a call whose arguments' histories are known.
  History of_call(const Call& call) const {
    History out;
    if (call.op.starts_with("aten::sym_size")) return out;
    for_each_value(call, [&](ValueId v) {
      const std::int32_t i = maker(v);
      if (i < static_cast<std::int32_t>(histories_.size()))
        out.add(i < 0 ? of_source(v) : histories_[static_cast<std::size_t>(i)]);
    });
    if (out.closed) return out;
    const LibraryFact* builder = mask_builder(call.source);
    out.built = out.built || builds(call);
    // An exporter's optimizer may have folded the comparison.
    out.causal = out.causal || (builder && builder->subject.find("causal") != std::string::npos) ||
                 call.op == "aten::le.Tensor" || call.op == "aten::tril" || call.op == "aten::triu";
    if (const auto r = reach(call)) out.window = std::min(*r, out.window.value_or(*r));
    out.length = std::max(out.length, tokens(call));
    return out;
  }

  /// Calls that make `mask` are candidates for being dropped.
  void mark(ValueId mask) {
    std::vector<ValueId> open{mask};
    while (!open.empty()) {
      const std::int32_t i = maker(open.back());
      open.pop_back();
      if (i < 0 || marked_[static_cast<std::size_t>(i)]) continue;
      const Call& call = tape_.calls[static_cast<std::size_t>(i)];
      if (call.op.starts_with("aten::sym_size")) continue;
      marked_[static_cast<std::size_t>(i)] = candidate_[static_cast<std::size_t>(i)] = true;
      for_each_value(call, [&](ValueId v) { open.push_back(v); });
    }
  }

  /// is_causal of the eager call, or nothing when the mask is there in eager code as well.
  std::optional<bool> eager_says(ValueId mask) {
    const History h = of_value(mask);
    const bool any = tape_.reading.masks == MaskReading::eager;
    if (h.closed || (!h.built && !any)) return std::nullopt;
    // Eager code drops the mask of a window only where all tokens are within. Values are those of the emulated GPU
    // (docs/emulated-gpu.md), to which `mask.all()` is true. Causal code asks for a sum instead, which is not full.
    if (!any && ((h.window && h.length >= *h.window) || (h.causal && h.from_input))) return std::nullopt;
    told_by_input_ = h.from_input;
    built_by_name_ = h.built;
    mark(mask);
    return h.causal;
  }

  /// x where `repeated` is x[:, :, None].expand(…).reshape(…), else nothing.
  ValueId unrepeated(const Arg& repeated) {
    const auto* id = std::get_if<ValueId>(&repeated.value);
    std::int32_t i = id ? maker(*id) : -1;
    std::vector<std::int32_t> chain;
    bool expanded = false, parted = false;
    while (i >= 0 && chain.size() < 8) {
      const Call& call = tape_.calls[static_cast<std::size_t>(i)];
      const auto* from = call.args.empty() ? nullptr : std::get_if<ValueId>(&call.args[0].value);
      const bool part_of_it = call.op == "aten::reshape" || call.op == "aten::contiguous" ||
                              call.op == "aten::expand" || call.op == "aten::unsqueeze" ||
                              call.op == "memplan::index_slice";
      if (!from || !part_of_it) break;
      expanded = expanded || call.op == "aten::expand";
      parted = parted || call.op == "aten::unsqueeze";
      chain.push_back(i);
      const std::int32_t next = maker(*from);
      const bool slice_follows = next >= 0 && tape_.calls[static_cast<std::size_t>(next)].op == "memplan::index_slice";
      if (expanded && parted && !slice_follows) {
        for (std::int32_t c : chain) candidate_[static_cast<std::size_t>(c)] = true;
        return *from;
      }
      i = next;
    }
    return {};
  }

  Tape& tape_;
  std::vector<std::int32_t> maker_;
  std::vector<bool> candidate_;
  std::vector<bool> marked_;        ///< candidates with all that they rest on
  std::vector<History> histories_;  ///< of the first calls
  /// Lines that build masks, by scope: views of the tape's own text.
  std::set<std::pair<std::int32_t, std::string_view>> builders_;
  bool built_by_name_ = false;  ///< a line says so
  bool told_by_input_ = false;  ///< the mask in question rests on what an input holds
};

}  // namespace

void recover_causal_masks(Tape& tape) { Masks(tape).run(); }

}  // namespace memplan
