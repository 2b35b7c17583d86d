#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "estimators/facts/libraries.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/restore/passes.h"
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

  /// x * noise, noise made inside: the product is x.
  bool pass_through(Iterator first, Iterator last) {
    const Call& product = *(last - 1);
    if (product.op != "aten::mul.Tensor" || product.outputs.size() != 1) return false;
    for (std::size_t i = 0; i < 2; ++i) {
      const ValueId* x = id_at(product, i);
      if (!x || std::any_of(first, last, [&](const Call& c) {
            return std::find(c.outputs.begin(), c.outputs.end(), *x) != c.outputs.end();
          }))
        continue;
      renamed_[product.outputs[0].index] = *x;
      ++skipped_;
      return true;
    }
    return false;
  }

  /// Self-attention over a batch-first input with a packed projection and no mask (nn/modules/activation.py, forward).
  bool attention(Iterator first, Iterator last) {
    const Call *swap = &*first, *packed = nullptr, *out = nullptr, *core = nullptr;
    for (auto c = first; c != last; ++c) {
      if (c->op == "aten::linear") (packed ? out : packed) = &*c;
      if (c->op == "aten::scaled_dot_product_attention") core = &*c;
    }
    if (swap->op != "aten::transpose.int" || !packed || !out || !core || packed->args.size() < 3 ||
        out->args.size() < 3)
      return false;
    if (core->args.size() > 3 && !core->args[3].is_none()) return false;
    const ValueId *weight = id_at(*packed, 1), *q = id_at(*core, 0);
    if (!weight || !q || !tape_.values[static_cast<std::size_t>(weight->index)].name.ends_with("in_proj_weight"))
      return false;
    std::int64_t heads = 0;
    for (auto c = first; c != last; ++c)
      if (c->outputs.size() == 1 && c->outputs[0] == *q && c->args.size() > 1)
        if (const auto* sizes = std::get_if<Arg::List>(&c->args[1].value); sizes && sizes->size() == 4)
          if (const auto* n = std::get_if<std::int64_t>(&(*sizes)[1].value)) heads = *n;
    const Call& end = *(last - 1);
    if (heads <= 0 || heads % 2 != 0 || end.op != "aten::transpose.int" || end.outputs.size() != 1) return false;
    Call fast;
    fast.op = "aten::_native_multi_head_attention";
    fast.args = {swap->args.at(0), packed->args[1], packed->args[2], out->args[1], out->args[2], Arg{heads}};
    fast.outputs = end.outputs;
    fast.scope = end.scope;
    fast.source = end.source;
    // Sizes that are worked out here may be read by other modules.
    std::copy_if(first, last, std::back_inserter(tape_.calls),
                 [](const Call& c) { return c.op.starts_with("_operator.") || c.op.starts_with("aten::sym_"); });
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
  const bool fast_paths_;
  std::unordered_map<std::int32_t, ValueId> renamed_;
  std::int64_t skipped_ = 0, fast_ = 0;
};

}  // namespace

void enter_inference(Tape& tape, Precision precision) {
  EvalMode(tape, precision != Precision::amp_bf16 && precision != Precision::amp_fp16).run();
  settle_releases(tape);
}

}  // namespace memplan
