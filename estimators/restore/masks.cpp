#include <algorithm>
#include <string_view>

#include "estimators/facts/libraries.h"
#include "estimators/restore/passes.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// The line calls a function that builds masks only because it is traced.
bool builds_mask(std::string_view source) {
  const auto& known = library_facts("masks_while_traced");
  return std::any_of(known.begin(), known.end(),
                     [&](const LibraryFact& f) { return source.find(f.subject + "(") != std::string_view::npos; });
}

/// The line stands in a library that has such functions.
bool in_such_library(std::string_view source) {
  const auto& known = library_facts("masks_while_traced");
  return std::any_of(known.begin(), known.end(),
                     [&](const LibraryFact& f) { return source.starts_with(f.library + "/"); });
}

class Masks {
 public:
  explicit Masks(Tape& tape) : tape_(tape), maker_(tape.values.size(), -1), candidate_(tape.calls.size(), false) {
    for (std::size_t i = 0; i < tape.calls.size(); ++i)
      for (ValueId id : tape.calls[i].outputs)
        if (id.valid()) maker_[static_cast<std::size_t>(id.index)] = static_cast<std::int32_t>(i);
  }

  void run() {
    std::int64_t masks = 0, heads = 0;
    for (Call& call : tape_.calls) {
      if (call.op != "aten::scaled_dot_product_attention" || !in_such_library(call.source) || call.args.size() < 4)
        continue;
      const auto* mask = std::get_if<ValueId>(&call.args[3].value);
      if (!mask) continue;
      const auto causal = eager_says(*mask);
      if (!causal) continue;
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
    if (masks == 0) return;
    remove_unused_calls(tape_, [&](const Call&, std::size_t i) { return candidate_[i]; });
    tape_.recovered.push_back({"attention without a mask", "masks that transformers builds only while it is traced",
                               masks, Evidence::told_by_source_line, About::mask});
    if (heads)
      tape_.recovered.push_back(
          {"enable_gqa", "repeated key and value heads", heads, Evidence::told_by_source_line, About::mask});
  }

 private:
  std::int32_t maker(ValueId id) const { return id.valid() ? maker_[static_cast<std::size_t>(id.index)] : -1; }

  /// Eager code looks at the values of the mask of tokens and makes no mask where no token is padding
  /// (transformers' masking_utils.py: _ignore_causal_mask_sdpa, _ignore_bidirectional_mask_sdpa); traced code cannot.
  bool may_be_dropped(const TapeValue& input) const {
    return tape_.reading.masks == MaskReading::eager && input.sizes.size() == 2 && !is_floating(input.dtype);
  }

  /// is_causal of the eager call, or nothing when the mask is there in eager code as well.
  std::optional<bool> eager_says(ValueId mask) {
    std::vector<ValueId> open{mask};
    std::vector<std::int32_t> seen;
    bool built = false, causal = false;
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      const std::int32_t i = maker(id);
      if (i < 0) {
        const TapeValue& v = tape_.values[static_cast<std::size_t>(id.index)];
        if (v.kind == ValueKind::parameter) return std::nullopt;
        if (v.kind == ValueKind::user_input && !may_be_dropped(v)) return std::nullopt;
        continue;
      }
      if (std::find(seen.begin(), seen.end(), i) != seen.end()) continue;
      const Call& call = tape_.calls[static_cast<std::size_t>(i)];
      if (call.op.starts_with("aten::sym_size")) continue;
      seen.push_back(i);
      built = built || tape_.reading.masks == MaskReading::eager || builds_mask(call.source);
      causal = causal || call.op == "aten::le.Tensor" || call.op == "aten::tril" || call.op == "aten::triu";
      // A sliding window compares once more; eager code drops that mask only for short sequences.
      const bool window = call.op == "aten::gt.Tensor" || call.op == "aten::lt.Tensor";
      if (window && tape_.reading.masks != MaskReading::eager) return std::nullopt;
      for_each_value(call, [&](ValueId v) { open.push_back(v); });
    }
    if (!built) return std::nullopt;
    for (std::int32_t i : seen) candidate_[static_cast<std::size_t>(i)] = true;
    return causal;
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
};

}  // namespace

void recover_causal_masks(Tape& tape) { Masks(tape).run(); }

}  // namespace memplan
