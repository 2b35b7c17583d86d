#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "estimators/facts/libraries.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/restore/passes.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

const ValueId* id_at(const Call& call, std::size_t i) {
  return i < call.args.size() ? std::get_if<ValueId>(&call.args[i].value) : nullptr;
}

class EvalMode {
 public:
  EvalMode(Tape& tape, bool fast_paths) : tape_(tape), fast_paths_(fast_paths) {}

  void run() {
    reads_ = count_reads(tape_);
    std::vector<Call> calls = std::move(tape_.calls);
    tape_.calls.clear();
    for (std::size_t i = 0; i < calls.size();) {
      std::size_t end = i + 1;
      while (end < calls.size() && calls[end].scope == calls[i].scope) ++end;
      const std::string_view module =
          calls[i].scope >= 0 ? std::string_view(tape_.scopes[static_cast<std::size_t>(calls[i].scope)].module_class)
                              : std::string_view{};
      const auto first = calls.begin() + static_cast<std::ptrdiff_t>(i),
                 last = calls.begin() + static_cast<std::ptrdiff_t>(end);
      // F.dropout(inplace=True) of nn.Dropout is written out as the same product in ONNX files.
      const bool drops = fact_of_class("drops_in_training", module) != nullptr;
      const bool replaced = drops                                                            ? pass_through(first, last)
                            : fast_paths_ && fact_of_class("fast_path_in_inference", module) ? attention(first, last)
                                                                                             : false;
      if (!replaced) std::move(first, last, std::back_inserter(tape_.calls));
      i = end;
    }
    rename();
    if (fast_) encoder_layers();
    if (skipped_)
      tape_.recovered.push_back(
          {"identity", "modules that drop in training only", skipped_, Evidence::told_by_name, About::mode});
    if (fast_)
      tape_.recovered.push_back({"aten::_native_multi_head_attention", "nn.MultiheadAttention in inference", fast_,
                                 Evidence::told_by_name, About::mode});
  }

 private:
  using Iterator = std::vector<Call>::iterator;

  /// x * noise or x.div(keep) * noise, noise made inside: the product is x.
  bool pass_through(Iterator first, Iterator last) {
    const Call& product = *(last - 1);
    if (product.op != "aten::mul.Tensor" || product.outputs.size() != 1) return false;
    const auto maker = [&](ValueId id) {
      return std::find_if(first, last,
                          [&](const Call& c) { return std::ranges::find(c.outputs, id) != c.outputs.end(); });
    };
    for (std::size_t i = 0; i < 2; ++i) {
      const ValueId* x = id_at(product, i);
      auto made = x ? maker(*x) : last;
      if (made != last && made->op.starts_with("aten::div.")) {
        x = id_at(*made, 0);
        made = x ? maker(*x) : last;
      }
      if (!x || made != last) continue;
      renamed_[product.outputs[0].index] = *x;
      ++skipped_;
      return true;
    }
    return false;
  }

  /// Calls of nn.MultiheadAttention, as far as the fast path depends on them.
  struct Attention {
    const Call *packed = nullptr, *out = nullptr;  ///< the projections
    const Call *core = nullptr, *softmax = nullptr, *averaged = nullptr;
    const Call* biased = nullptr;  ///< scores that a mask is added to
    bool masked = false;
  };

  static Attention parts_of(Iterator first, Iterator last) {
    Attention a;
    for (auto c = first; c != last; ++c) {
      if (c->op == "aten::linear") (a.packed ? a.out : a.packed) = &*c;
      if (c->op == "aten::scaled_dot_product_attention") a.core = &*c;
      if (c->op == "aten::softmax.int" || c->op == "aten::_softmax") a.softmax = &*c;
      if (c->op == "aten::mean.dim") a.averaged = &*c;
      if (c->op.starts_with("aten::baddbmm")) a.biased = &*c;
      a.masked = a.masked || c->op == "aten::masked_fill.Scalar";
    }
    a.masked = a.masked || a.biased || (a.core && a.core->args.size() > 3 && !a.core->args[3].is_none());
    return a;
  }

  /// Features of a head, which the query's view says last; 0 where none does.
  static std::int64_t features_of_head(Iterator first, Iterator last, const Attention& a) {
    const ValueId* q = a.core ? id_at(*a.core, 0) : nullptr;
    for (auto c = first; c != last; ++c) {
      const auto* sizes = c->args.size() > 1 ? std::get_if<Arg::List>(&c->args[1].value) : nullptr;
      const bool heads = c->outputs.size() == 1 && sizes &&
                         (q ? c->outputs[0] == *q && sizes->size() == 4 : sizes->size() == 3 && &*c > a.packed);
      if (!heads) continue;
      const auto* n = std::get_if<std::int64_t>(&sizes->back().value);
      return n ? *n : 0;
    }
    return 0;
  }

  /// Masks as torch/nn/modules/activation.py numbers them (merge_masks): attn_mask, of queries and keys, is 0;
  /// key_padding_mask, of samples and keys, is 1.
  struct Mask {
    ValueId value;  ///< invalid: attention is causal, for which the file has no mask
    std::int64_t type = 0;
  };

  /// The mask that the caller gave, of which attention makes views: `view(…).expand(…)` for every head of one of keys.
  /// An optimizer may leave those of the first of several modules alone. None where there is no mask that the fast path
  /// takes as one: two were added.
  std::optional<Mask> mask_of(Iterator first, Iterator last, const Attention& a) {
    const Call* reader = a.core ? a.core : a.biased;
    if (!reader) return std::nullopt;
    const auto* causal = a.core && a.core->args.size() > 5 ? std::get_if<bool>(&a.core->args[5].value) : nullptr;
    if (causal && *causal) return Mask{};
    Mask mask{value_at(*reader, a.core ? 3 : 0), 0};
    if (const auto known = masks_.find(mask.value.index); known != masks_.end()) return known->second;
    std::vector<std::int32_t> views;
    for (auto c = std::make_reverse_iterator(last); c != std::make_reverse_iterator(first) && mask.value.valid(); ++c) {
      if (c->outputs.size() != 1 || c->outputs[0] != mask.value) continue;
      if (c->op == "aten::expand") mask.type = 1;
      views.push_back(mask.value.index);
      const bool view =
          c->op == "aten::expand" || c->op == "aten::view" || c->op == "aten::reshape" || c->op == "aten::unsqueeze";
      mask.value = view ? value_at(*c, 0) : ValueId{};
    }
    if (views.empty() || !mask.value.valid()) return std::nullopt;
    for (const std::int32_t v : views) masks_[v] = mask;
    return mask;
  }

  bool is_view_of_mask(const Call& call) const {
    return call.outputs.size() == 1 && masks_.contains(call.outputs[0].index);
  }

  /// A view of the mask that calls of other modules read as well.
  bool is_read_outside(Iterator first, Iterator last, const Call& call) const {
    if (!is_view_of_mask(call)) return false;
    int here = 0;
    for (auto c = first; c != last; ++c) for_each_value(*c, [&](ValueId id) { here += id == call.outputs[0]; });
    return here < reads_[static_cast<std::size_t>(call.outputs[0].index)];
  }

  /// nn.TransformerEncoder makes a nested tensor of what a mask of keys leaves.
  bool in_encoder(std::int32_t scope) const {
    for (; scope >= 0; scope = tape_.scopes[static_cast<std::size_t>(scope)].parent)
      if (tape_.scopes[static_cast<std::size_t>(scope)].module_class ==
          "torch.nn.modules.transformer.TransformerEncoder")
        return true;
    return false;
  }

  /// Self-attention over a batch-first input with a packed projection, with one mask or none (nn/modules/activation.py,
  /// forward).
  bool attention(Iterator first, Iterator last) {
    // What makes numbers of a mask comes before the choice of a path.
    const auto begin = std::find_if_not(
        first, last, [](const Call& c) { return c.op == "aten::zeros_like" || c.op.starts_with("aten::masked_fill"); });
    if (begin == last) return false;
    const Call* swap = &*begin;
    const Attention a = parts_of(begin, last);
    const std::optional<Mask> mask = mask_of(begin, last, a);
    if ((a.masked && !mask) || (mask && mask->type == 1 && in_encoder(swap->scope))) return false;
    if (swap->op != "aten::transpose.int" || !a.packed || !a.out || a.packed->args.size() < 3 ||
        a.out->args.size() < 3 || (!a.core && !a.softmax))
      return false;
    const ValueId* weight = id_at(*a.packed, 1);
    if (!weight) return false;
    const TapeValue& projection = tape_.values[static_cast<std::size_t>(weight->index)];
    if (!projection.name.ends_with("in_proj_weight") || projection.sizes.size() != 2) return false;
    const std::int64_t features = features_of_head(begin, last, a);
    const std::int64_t heads = features > 0 ? projection.sizes[1] / features : 0;
    const Call& end = *(last - 1);
    if (heads <= 0 || heads % 2 != 0 || end.op != "aten::transpose.int" || end.outputs.size() != 1) return false;
    Call fast;
    fast.op = "aten::_native_multi_head_attention";
    // Without need_weights=False the module asks for the weights, and gets their mean over the heads.
    fast.args = {swap->args.at(0), a.packed->args[1], a.packed->args[2], a.out->args[1],
                 a.out->args[2],   Arg{heads},        Arg{!a.core},      Arg{a.averaged || !a.core}};
    if (mask) {
      fast.args.push_back(mask->value.valid() ? Arg{mask->value} : Arg{});
      fast.args.push_back({mask->type});
    }
    fast.outputs = end.outputs;
    if (!a.core) {
      TapeValue weights;
      weights.name = "attn_output_weights";
      fast.outputs.push_back(a.averaged ? a.averaged->outputs.at(0) : tape_.add_value(std::move(weights)));
    }
    fast.scope = end.scope;
    fast.source = end.source;
    std::move(first, begin, std::back_inserter(tape_.calls));
    // Sizes that are worked out here, and views of the mask, may be read by other modules.
    const bool shared = std::any_of(begin, last, [&](const Call& c) { return is_read_outside(begin, last, c); });
    std::copy_if(begin, last, std::back_inserter(tape_.calls), [&](const Call& c) {
      return c.op.starts_with("_operator.") || c.op.starts_with("aten::sym_") || (shared && is_view_of_mask(c));
    });
    tape_.calls.push_back(std::move(fast));
    ++fast_;
    return true;
  }

  bool is_norm_of(const Call& call, std::int32_t layer) const {
    return call.op == "aten::layer_norm" && call.scope >= 0 &&
           tape_.scopes[static_cast<std::size_t>(call.scope)].parent == layer;
  }

  /// nn.TransformerEncoderLayer whose attention takes the fast path is one op as a whole
  /// (native/transformers/transformer.cpp): its sums are written into what attention and the feed-forward network
  /// returned, the activation into its argument, and no names of Python hold anything.
  void encoder_layers() {
    std::vector<bool> whole(tape_.scopes.size(), false);
    for (const Call& c : tape_.calls) {
      if (c.op != "aten::_native_multi_head_attention" || c.scope < 0) continue;
      const std::int32_t layer = tape_.scopes[static_cast<std::size_t>(c.scope)].parent;
      if (layer >= 0 &&
          fact_of_class("one_op_in_inference", tape_.scopes[static_cast<std::size_t>(layer)].module_class))
        whole[static_cast<std::size_t>(layer)] = true;
    }
    std::vector<std::int32_t> maker(tape_.values.size(), -1);
    std::unordered_map<std::int32_t, std::size_t> last_sum;  // of each layer
    std::unordered_map<std::int32_t, std::vector<std::size_t>> linears;
    for (std::size_t i = 0; i < tape_.calls.size(); ++i) {
      Call& c = tape_.calls[i];
      for (ValueId id : c.outputs)
        if (id.valid()) maker[static_cast<std::size_t>(id.index)] = static_cast<std::int32_t>(i);
      if (c.scope < 0) continue;
      const std::int32_t parent = tape_.scopes[static_cast<std::size_t>(c.scope)].parent;
      const bool own = whole[static_cast<std::size_t>(c.scope)];
      if (!own && !(parent >= 0 && whole[static_cast<std::size_t>(parent)])) continue;
      (own ? c.source : tape_.scopes[static_cast<std::size_t>(c.scope)].source).clear();
      if (c.op == "aten::relu" || c.op == "aten::gelu") c.op += '_';
      if (!own && c.op == "aten::linear") linears[parent].push_back(i);
      // A norm behind the second sum: the first norm's result lives until the op returns.
      const auto sum = own ? last_sum.end() : last_sum.find(parent);
      if (sum != last_sum.end() && c.op == "aten::layer_norm") {
        const Call& added = tape_.calls[sum->second];
        const ValueId residual = *id_at(added, 1);
        const std::int32_t made = maker[static_cast<std::size_t>(residual.index)];
        if (made >= 0 && is_norm_of(tape_.calls[static_cast<std::size_t>(made)], parent))
          c.releases = {added.outputs.at(0), residual};
      }
      if (!own || c.op != "aten::add.Tensor" || c.args.size() < 2) continue;
      const ValueId *a = id_at(c, 0), *b = id_at(c, 1);
      if (!a || !b) continue;
      c.op = "aten::add_.Tensor";
      if (maker[static_cast<std::size_t>(a->index)] < maker[static_cast<std::size_t>(b->index)])
        std::swap(c.args[0], c.args[1]);
      last_sum[c.scope] = i;
      // The network's input has a name until the network has returned.
      const auto& network = linears[c.scope];
      if (network.size() != 2) continue;
      const ValueId *input = id_at(tape_.calls[network[0]], 0), *residual = id_at(c, 1);
      if (input && residual && *input != *residual) tape_.calls[network[1]].releases = {*input};
    }
  }

  void rename() {
    auto final_name = [&](ValueId id) {
      for (auto it = renamed_.find(id.index); it != renamed_.end(); it = renamed_.find(id.index)) id = it->second;
      return id;
    };
    for (Call& c : tape_.calls) replace_values(c, [&](ValueId id) { return Arg{final_name(id)}; });
    for (ValueId& id : tape_.outputs) id = final_name(id);
  }

  Tape& tape_;
  std::vector<int> reads_;                        ///< of each value
  std::unordered_map<std::int32_t, Mask> masks_;  ///< by the views that attention makes of them
  const bool fast_paths_;
  std::unordered_map<std::int32_t, ValueId> renamed_;
  std::int64_t skipped_ = 0, fast_ = 0;
};

}  // namespace

void enter_inference(Tape& tape, Precision precision) {
  EvalMode(tape, !is_amp(precision)).run();
  settle_releases(tape);
}

}  // namespace memplan
