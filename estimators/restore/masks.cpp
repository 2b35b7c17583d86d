#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "estimators/restore/mask_history.h"
#include "estimators/restore/passes.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

class Masks {
 public:
  explicit Masks(Tape& tape)
      : tape_(tape), calls_(tape), candidate_(tape.calls.size(), false), marked_(tape.calls.size(), false) {}

  void run() {
    const bool packed = unpack();
    const std::int64_t biased = part_from_biases();
    std::int64_t masks = 0, full = 0, heads = 0;
    for (const std::size_t i : of_biases_) heads += group_heads(tape_.calls[i]);
    for (Call& call : tape_.calls) {
      if (call.op != "aten::scaled_dot_product_attention" || !in_library_of_masks(call.source) || call.args.size() < 4)
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
      heads += group_heads(call);
    }
    const std::int64_t added = drop_added();
    if (masks == 0 && added == 0 && biased == 0 && steps_.empty() && !packed) return;
    remove_unused_calls(tape_, [&](const Call&, std::size_t i) { return candidate_[i]; });
    for (const Step& step : steps_) insert(step);
    if (biased)
      tape_.recovered.push_back({"a position bias without a mask",
                                 "masks that transformers joins with a bias only while it is traced", biased,
                                 Evidence::told_by_source_line, About::mask});
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
  static void put_instead(Call& call, const std::map<std::int32_t, ValueId>& instead) {
    if (instead.empty()) return;
    replace_values(call, [&](ValueId id) {
      const auto it = instead.find(id.index);
      return Arg{it == instead.end() ? id : it->second};
    });
  }

  /// Attention that is spelled out adds its mask where there is one: `if attention_mask is not None: scores + mask`. Of
  /// masks that look both ways eager code makes none for a full batch.
  std::int64_t drop_added() {
    std::int64_t added = 0;
    std::map<std::int32_t, ValueId> instead;
    calls_.forget();
    marked_.assign(marked_.size(), false);
    for (std::size_t i = 0; i < tape_.calls.size(); ++i) {
      Call& call = tape_.calls[i];
      put_instead(call, instead);
      if ((call.op != "aten::add.Tensor" && call.op != "aten::add_.Tensor") || call.args.size() != 2 ||
          call.outputs.size() != 1 || calls_.builds_mask(call))
        continue;
      const auto *scores = std::get_if<ValueId>(&call.args[0].value), *mask = std::get_if<ValueId>(&call.args[1].value);
      if (!scores || !mask || calls_.maker(*mask) < 0) continue;
      built_by_name_ = false;
      const auto causal = eager_says(*mask);
      // Told by nothing, they are at least one reading.
      const bool told =
          built_by_name_ || (tape_.reading.masks == MaskReading::eager && calls_.of_value(*scores).closed);
      if (!causal || *causal || !told) continue;
      instead[call.outputs[0].index] = *scores;
      candidate_[i] = true;
      ++added;
    }
    for (ValueId& id : tape_.outputs)
      if (const auto it = instead.find(id.index); it != instead.end()) id = it->second;
    return added;
  }

  /// Positions are looked at for sequences that are packed into one: traced code compares the numbers of sequences in
  /// the mask, eager code sees that there is one (masking_utils.py: find_packed_sequence_indices).
  bool unpack() {
    std::map<std::int32_t, ValueId> instead;
    for (Call& call : tape_.calls) {
      put_instead(call, instead);
      const bool joins = call.op == "aten::__and__.Tensor" || call.op == "aten::bitwise_and.Tensor";
      if (!joins || call.args.size() != 2 || !calls_.builds_mask(call)) continue;
      const auto* of = std::get_if<ValueId>(&call.args[0].value);
      if (!of || !compares_sequences(calls_.made(call, 1))) continue;
      mark(std::get<ValueId>(call.args[1].value));
      candidate_[index_of(call)] = true;
      instead[call.outputs.at(0).index] = *of;
    }
    return !instead.empty();
  }

  /// numbers[queries] == numbers[keys], where positions that do not follow each other count up the numbers.
  bool compares_sequences(const Call* call) const {
    while (call && call->op.starts_with("aten::to.")) call = calls_.made(*call, 0);
    if (!call || call->op != "aten::eq.Tensor") return false;
    const auto counts = [&](std::size_t arg) {
      const Call* index = calls_.made(*call, arg);
      const Call* numbers = index && index->op == "aten::index.Tensor" ? calls_.made(*index, 0) : nullptr;
      return numbers && numbers->op == "aten::cumsum";
    };
    return counts(0) && counts(1);
  }

  /// Where eager code makes its own mask, of queries times keys alone.
  struct Triangle {
    Call queries, keys;  ///< number them
  };
  /// What an attention with a bias of positions gets as its mask.
  struct Joined {
    ValueId mask, bias;
    Arg otherwise;                     ///< where the mask is false
    std::optional<bool> causal;        ///< of eager code that has no such mask; nothing where it has it
    std::optional<Triangle> triangle;  ///< where causal
  };
  /// Calls to put in front of another one.
  struct Step {
    ValueId before;                    ///< what that one makes
    std::optional<Triangle> triangle;  ///< replaces the first argument
    std::optional<Joined> joined;      ///< the attention's own mask, where layers share one
    bool copies = false;               ///< the mask is made contiguous
  };

  /// Attention with a learned bias of positions passes it as its mask. Eager code leaves a full mask out of it, joins a
  /// causal one of its own, without a batch, and lays out the result anew (integrations/sdpa_attention.py:
  /// create_position_bias_mask). An exporter's optimizer merges layers' joins, and drops the last step.
  std::int64_t part_from_biases() {
    std::int64_t count = 0;
    std::map<std::size_t, std::optional<Joined>> joins;
    for (std::size_t i = 0; i < tape_.calls.size(); ++i) {
      Call& attention = tape_.calls[i];
      if (attention.op != "aten::scaled_dot_product_attention" || !in_library_of_masks(attention.source)) continue;
      const Call* by = calls_.made(attention, 3);
      const bool met = by && joins.contains(index_of(*by));  // part() may have made it something else
      const bool copied = by && !met && by->op == "aten::contiguous";
      if (copied) by = calls_.made(*by, 0);
      if (!by || (!met && !joins_bias(*by, attention))) continue;
      const std::size_t where = index_of(*by);
      const auto [it, own] = joins.try_emplace(where);
      if (own) it->second = joined_of(*by);
      if (!it->second) continue;
      const Joined& joined = *it->second;
      if (!own) {
        attention.args[3] = {joined.bias};
        steps_.push_back({attention.outputs[0], std::nullopt, joined, true});
      } else {
        part(tape_.calls[where], joined);
        if (!copied && joined.causal.value_or(true))
          steps_.push_back({attention.outputs[0], std::nullopt, std::nullopt, true});
      }
      if (!joined.causal) continue;
      of_biases_.push_back(i);
      ++count;
    }
    calls_.forget();
    return count;
  }

  static bool joins_bias(const Call& call, const Call& attention) {
    return (call.op == "aten::where.ScalarOther" || call.op == "aten::where.self") && call.args.size() == 3 &&
           call.source == attention.source;
  }

  std::optional<Joined> joined_of(const Call& where) {
    if (calls_.builds_mask(where)) return std::nullopt;
    const ValueId mask = value_at(where, 0), bias = value_at(where, 1);
    if (!bias.valid() || calls_.maker(mask) < 0) return std::nullopt;
    Joined out{mask, bias, where.args[2], eager_says(mask), std::nullopt};
    if (out.causal.value_or(false) && !(out.triangle = triangle_of(mask))) return std::nullopt;
    return out;
  }

  /// Makes of the join what eager code does.
  void part(Call& where, const Joined& joined) {
    if (!joined.causal) return;
    if (!*joined.causal) {
      where.op = "aten::contiguous";
      where.args = {{joined.bias}};
      where.kwargs.clear();
      return;
    }
    where.args[0] = {joined.bias};  // so that nothing reads the mask; insert() puts the other one there
    steps_.push_back({where.outputs[0], joined.triangle, std::nullopt, false});
  }

  /// Without a mask key and value heads are left unrepeated (integrations/sdpa_attention.py: use_gqa_in_sdpa).
  bool group_heads(Call& attention) {
    const ValueId k = unrepeated(attention.args[1]), v = unrepeated(attention.args[2]);
    if (!k.valid() || !v.valid()) return false;
    attention.args[1] = {k};
    attention.args[2] = {v};
    attention.kwargs.emplace_back("enable_gqa", Arg{true});
    return true;
  }

  std::size_t index_of(const Call& call) const { return static_cast<std::size_t>(&call - tape_.calls.data()); }

  /// Of `keys <= queries`, where both are numbered by a call, or of what an exporter's optimizer worked out of it.
  std::optional<Triangle> triangle_of(ValueId mask) const {
    std::vector<ValueId> open{mask};
    std::set<std::int32_t> seen;
    while (!open.empty()) {
      const std::int32_t i = calls_.maker(open.back());
      open.pop_back();
      if (i < 0 || !seen.insert(i).second) continue;
      const Call& call = tape_.calls[static_cast<std::size_t>(i)];
      if (call.op == "aten::le.Tensor" && numbering(call, 0) && numbering(call, 1))
        return Triangle{*numbering(call, 1), *numbering(call, 0)};
      if (const auto sizes = sizes_of_folded_mask(call)) {
        const auto numbers = [](std::int64_t n) {
          Call arange;
          arange.op = "aten::arange";
          arange.args = {{n}};
          return arange;
        };
        return Triangle{numbers(sizes->first), numbers(sizes->second)};
      }
      if (calls_.builds_mask(call)) for_each_value(call, [&](ValueId id) { open.push_back(id); });
    }
    return std::nullopt;
  }

  /// The arange that an argument is a view of, or a sum with.
  const Call* numbering(const Call& call, std::size_t arg) const {
    const Call* by = calls_.made(call, arg);
    while (by && !by->op.starts_with("aten::arange")) by = calls_.made(*by, 0);
    return by;
  }

  void insert(const Step& step) {
    const auto at = std::find_if(tape_.calls.begin(), tape_.calls.end(),
                                 [&](const Call& c) { return !c.outputs.empty() && c.outputs[0] == step.before; });
    if (at == tape_.calls.end()) return;
    std::vector<Call> calls;
    const auto add = [&](Call call) {
      const ValueId made = tape_.add_value({});
      call.outputs = {made}, call.scope = at->scope, call.source = at->source, call.binding = -1;
      calls.push_back(std::move(call));
      return made;
    };
    const auto call_of = [&](const char* op, std::vector<Arg> args) {
      Call call;
      call.op = op;
      call.args = std::move(args);
      return add(std::move(call));
    };
    // arange(queries)[:, None] >= arange(keys)[None, :]
    const auto lower = [&](const Triangle& t) {
      const ValueId queries = call_of("aten::unsqueeze", {{add(t.queries)}, {std::int64_t{1}}});
      const ValueId keys = call_of("aten::unsqueeze", {{add(t.keys)}, {std::int64_t{0}}});
      return call_of("aten::ge.Tensor", {{queries}, {keys}});
    };
    if (step.triangle) at->args[0] = {lower(*step.triangle)};
    if (step.joined) {
      const Joined& j = *step.joined;
      const bool full = j.causal && !*j.causal;
      if (!full) {
        const ValueId mask = j.triangle ? lower(*j.triangle) : j.mask;
        at->args[3] = {call_of("aten::where.ScalarOther", {{mask}, {j.bias}, j.otherwise})};
      }
    }
    if (step.copies) at->args[3] = {call_of("aten::contiguous", {at->args[3]})};
    tape_.calls.insert(at, std::make_move_iterator(calls.begin()), std::make_move_iterator(calls.end()));
  }

  /// Calls that make `mask` are candidates for being dropped.
  void mark(ValueId mask) {
    std::vector<ValueId> open{mask};
    while (!open.empty()) {
      const std::int32_t i = calls_.maker(open.back());
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
    const MaskHistory::History h = calls_.of_value(mask);
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
    std::int32_t i = id ? calls_.maker(*id) : -1;
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
      const std::int32_t next = calls_.maker(*from);
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
  MaskHistory calls_;
  std::vector<bool> candidate_;
  std::vector<bool> marked_;  ///< candidates with all that they rest on
  std::vector<Step> steps_;
  std::vector<std::size_t> of_biases_;  ///< calls of attention whose mask was parted from a bias
  bool built_by_name_ = false;          ///< a line says so
  bool told_by_input_ = false;          ///< the mask in question rests on what an input holds
};

}  // namespace

void recover_causal_masks(Tape& tape) { Masks(tape).run(); }

}  // namespace memplan
