#include "estimators/transforms/tensor_parallel.h"

#include <fmt/format.h>

#include <set>
#include <string_view>

#include "estimators/base/error.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/setup/field.h"
#include "estimators/tape/uses.h"
#include "estimators/transforms/blocks.h"
#include "estimators/transforms/tensor_rules.h"
#include "estimators/transforms/value_shapes.h"

namespace memplan {

namespace {

/// How a value lies on the ranks: whole, or cut along `dim`. Values cut by heads or features remember the layers that
/// cut them; values cut by the sequence can be gathered where somebody needs them whole.
struct Layout {
  int dim = -1;
  bool sequence = false;
  std::set<std::size_t> origins;  ///< calls
  bool whole() const { return dim < 0; }
};

/// A call that needs a value whole: the layers that cut it must stay whole.
struct Conflict {
  std::set<std::size_t> origins;
};

class Sharder {
 public:
  Sharder(const Tape& given, const TrainingSetup& setup, const std::vector<std::optional<Dims>>& shapes,
          const std::set<std::size_t>& keep_whole)
      : tape_(given),
        ranks_(setup.parallel.tensor),
        sequence_(setup.parallel.sequence_parallel),
        megatron_(is_megatron(setup.parallel.sharding)),
        training_(setup.mode == Mode::training),
        shapes_(shapes),
        keep_whole_(keep_whole),
        layouts_(given.values.size()),
        cut_(given.values.size(), -1),
        gathered_(given.values.size()) {
    mark_blocks(setup.parallel);
  }

  Tape run() {
    std::vector<Call> calls = std::move(tape_.calls);
    tape_.calls.clear();
    std::vector<std::int32_t> new_index(calls.size());
    for (std::size_t i = 0; i < calls.size(); ++i) {
      at_ = i;
      call_ = std::move(calls[i]);
      call_.last_uses.clear();
      visit();
      tape_.calls.push_back(call_);
      for (Call& c : after_) tape_.calls.push_back(std::move(c));
      after_.clear();
      new_index[i] = static_cast<std::int32_t>(tape_.calls.size()) - 1;
    }
    for (ValueId& id : tape_.outputs)
      if (const Layout l = layout(id); !l.whole() && !is_logits(l))
        id = l.sequence ? gather(id, l.dim, false) : throw Conflict{l.origins};
    for (std::size_t i = 0; i < cut_.size(); ++i)
      if (cut_[i] >= 0) {
        auto& size = tape_.values[i].sizes[static_cast<std::size_t>(cut_[i])];
        size = (size + ranks_ - 1) / ranks_;
      }
    for (CheckpointRegion& region : tape_.checkpoints) {
      region.first = region.first == 0 ? 0 : new_index[static_cast<std::size_t>(region.first) - 1] + 1;
      region.last = new_index[static_cast<std::size_t>(region.last)];
    }
    mark_last_uses(tape_);
    return std::move(tape_);
  }

 private:
  /// Megatron-LM's loss takes the logits of the rank's part of the vocabulary.
  bool is_logits(const Layout& l) const { return head_ && l.origins == std::set<std::size_t>{*head_}; }

  // --- what is where -----------------------------------------------------------------------------------------------

  void mark_blocks(const ParallelSetup& p) {
    const auto blocks = outermost(
        tape_, named_modules(tape_, p.blocks.empty() ? std::vector<std::string>{"blocks"} : p.blocks, Field::blocks));
    in_block_.resize(tape_.scopes.size(), false);
    for (std::size_t s = 0; s < tape_.scopes.size(); ++s)
      for (auto at = static_cast<std::int32_t>(s); at >= 0; at = tape_.scopes[static_cast<std::size_t>(at)].parent)
        if (blocks.count(at)) in_block_[s] = true;
  }
  bool in_block() const { return call_.scope >= 0 && in_block_[static_cast<std::size_t>(call_.scope)]; }

  const TapeValue& value(ValueId id) const { return tape_.values[static_cast<std::size_t>(id.index)]; }
  const Dims& shape(ValueId id) const {
    static const Dims none{};
    const auto& s = shapes_[static_cast<std::size_t>(id.index)];
    return s ? *s : none;
  }
  Layout& layout(ValueId id) { return layouts_[static_cast<std::size_t>(id.index)]; }
  ValueId argument(std::size_t i) const {
    if (i >= call_.args.size()) return {};
    const auto* id = std::get_if<ValueId>(&call_.args[i].value);
    return id ? *id : ValueId{};
  }
  bool is_parameter(ValueId id) const { return id.valid() && value(id).kind == ValueKind::parameter; }

  ValueId owner(ValueId parameter) const {
    return value(parameter).same_storage_as.valid() ? value(parameter).same_storage_as : parameter;
  }

  /// Cuts a parameter and those tied to it.
  void cut(ValueId parameter, int dim) {
    const ValueId first = owner(parameter);
    for (ValueId id : tape_.parameters)
      if (owner(id) == first) cut_[static_cast<std::size_t>(id.index)] = dim;
  }
  bool is_cut(ValueId parameter) const { return cut_[static_cast<std::size_t>(parameter.index)] >= 0; }

  [[noreturn]] void conflict(const Layout& l) const { throw Conflict{l.origins}; }

  std::string place() const {
    return call_.scope < 0 ? std::string() : tape_.scopes[static_cast<std::size_t>(call_.scope)].path;
  }
  void require_divisible(std::int64_t size, const char* what) const {
    if (size % ranks_ != 0)
      fail(ErrorKind::usage,
           fmt::format("{} tensor-parallel ranks do not divide the {} {} of {}", ranks_, size, what, place()),
           setting(Field::tensor_parallel), fmt::format("use a divisor of {}", size));
  }

  // --- collectives -------------------------------------------------------------------------------------------------

  ValueId fresh(ValueId like, const char* suffix) {
    TapeValue v = value(like);
    v.name += suffix;
    v.kind = ValueKind::computed;
    v.same_storage_as = {};
    layouts_.emplace_back();
    cut_.push_back(-1);
    gathered_.emplace_back();
    shapes_.push_back(shapes_[static_cast<std::size_t>(like.index)]);
    return tape_.add_value(std::move(v));
  }

  Call collective(const char* op, ValueId in, ValueId out, std::vector<Arg> rest = {}) const {
    Call c;
    c.op = op;
    c.args.push_back({in});
    for (Arg& a : rest) c.args.push_back(std::move(a));
    c.outputs = {out};
    c.scope = call_.scope;
    return c;
  }

  ValueId gather(ValueId id, int dim, bool reduce) {
    ValueId& known = gathered_[static_cast<std::size_t>(id.index)];
    if (known.valid()) return known;
    const ValueId out = fresh(id, ".gathered");
    tape_.calls.push_back(collective("memplan::all_gather", id, out, {{std::int64_t{dim}}, {ranks_}, {reduce}}));
    gathered_[static_cast<std::size_t>(id.index)] = out;
    return out;
  }

  /// Puts a collective behind the call: its result takes the place of the call's.
  void reduce_output(bool scatter, int dim) {
    const ValueId out = call_.outputs[0];
    const ValueId partial = fresh(out, ".partial");
    call_.outputs[0] = partial;
    after_.push_back(scatter ? collective("memplan::reduce_scatter", partial, out, {{std::int64_t{dim}}, {ranks_}})
                             : collective("memplan::all_reduce", partial, out, {{megatron_}}));
    if (scatter) layout(out) = {dim, true, {}};
  }

  /// Arguments that are cut by the sequence come whole into a call that cannot work on a share.
  void gather_arguments(bool reduce) {
    const auto whole = [&](ValueId id) -> Arg {
      const Layout l = layout(id);
      if (l.whole()) return {id};
      if (!l.sequence) conflict(l);
      return {gather(id, l.dim, reduce)};
    };
    replace_values(call_, whole);
  }

  // --- rules -------------------------------------------------------------------------------------------------------

  void visit() {
    const std::string_view op = base_name(call_.op);
    if (op == "linear" && is_parameter(argument(1))) return linear(argument(0), argument(1), argument(2), 0, 1);
    if (op == "addmm" && is_parameter(argument(2))) return linear(argument(1), argument(2), argument(0), 1, 0);
    if (op == "embedding" && is_parameter(argument(0))) return embedding();
    bool any = false;
    for_each_value(call_, [&](ValueId id) { any = any || !layout(id).whole(); });
    if (!any) return;
    if (op == "sym_size") return;
    if (op == "scaled_dot_product_attention") return attention();
    if (keeps_shape(op)) return elementwise();
    if (op == "view" || op == "reshape" || op == "_unsafe_view" || op == "flatten" || op == "unflatten" ||
        op == "view_as")
      return view();
    if (op == "transpose" || op == "permute" || op == "unsqueeze" || op == "squeeze" || op == "expand" ||
        op == "select")
      return rearrange(op);
    if (op == "cat" || op == "stack") return concatenate();
    if (op == "split" || op == "split_with_sizes" || op == "chunk" || op == "slice" || op == "index_slice" ||
        op == "narrow" || op == "unbind")
      return part(op);
    if (op == "matmul" || op == "bmm" || op == "softmax" || op == "_softmax" || op == "_safe_softmax" || op == "mean" ||
        op == "sum" || op == "var" || op == "layer_norm" || op == "rms_norm" || op == "_fused_rms_norm" ||
        op == "repeat_interleave")
      return along_other_dims(op);
    gather_arguments(true);
  }

  /// `out_dim`, `in_dim`: of the weight.
  void linear(ValueId x, ValueId weight, ValueId bias, int out_dim, int in_dim) {
    const Dims& w = shape(weight);
    Layout l = layout(x);
    const int last = shape(x).size() - 1;
    if (!l.whole() && !l.sequence) {
      if (l.dim != last) {  // cut by heads that are still apart: the layer works on every head
        layout(call_.outputs[0]) = l;
        return;
      }
      cut(weight, in_dim);
      // GPT-2's Conv1D works on [tokens, features]; its result becomes [batch, sequence, features] in the next view.
      const Dims& out = shape(call_.outputs[0]);
      const int tokens = megatron_ && out.size() == 2 ? 0 : 1;
      const bool scatter = sequence_ && (out.size() == 3 || tokens == 0) && out[tokens] % ranks_ == 0;
      reduce_output(scatter, tokens);
      return;
    }
    const bool head = !in_block() && w[out_dim] == vocabulary_ && vocabulary_ > 0;
    if ((!in_block() && !head) || keep_whole_.count(at_)) {
      if (l.sequence && (l.dim == last || (shape(x).size() < 3 && !megatron_)))
        gather_arguments(true);
      else if (l.sequence)
        layout(call_.outputs[0]) = l;
      return;
    }
    if (!head) require_divisible(w[out_dim], "features");
    if (l.sequence && megatron_ && training_) {
      call_.op = "memplan::column_linear";
      call_.args = {{x}, {weight}, bias.valid() ? Arg{bias} : Arg{}, {std::int64_t{l.dim}}, {ranks_}, {out_dim == 1}};
      call_.kwargs.clear();
    } else if (l.sequence) {
      call_.args[call_.op.starts_with("aten::addmm") ? 1 : 0] = {gather(x, l.dim, true)};
    } else {
      const ValueId copy = fresh(x, ".copy");
      tape_.calls.push_back(collective("memplan::all_reduce_backward", x, copy, {{megatron_}}));
      call_.args[call_.op.starts_with("aten::addmm") ? 1 : 0] = {copy};
    }
    cut(weight, out_dim);
    if (is_parameter(bias)) cut(bias, 0);
    const ValueId out = call_.outputs[0];
    const int dim = shape(out).size() - 1;
    if (!head) {
      layout(out) = {dim, false, {at_}};
      return;
    }
    if (megatron_ && training_) {
      head_ = at_;
      layout(out) = {dim, false, {at_}};
      return;
    }
    // ColwiseParallel(output_layouts=Replicate()): the logits are gathered; each rank keeps its part of the gradient.
    const ValueId part = fresh(out, ".part");
    call_.outputs[0] = part;
    after_.push_back(collective("memplan::all_gather", part, out, {{std::int64_t{dim}}, {ranks_}, {false}}));
  }

  /// The token embedding, by vocabulary: ids of other ranks are masked, the result is summed.
  void embedding() {
    const ValueId ids = argument(1);
    if (!ids.valid() || value(ids).kind != ValueKind::user_input || vocabulary_ > 0) return;
    vocabulary_ = shape(argument(0))[0];
    cut(argument(0), 0);
    call_.op = "memplan::vocab_embedding";
    // DTensor's gradient is whole, Megatron-LM's that of the rank's rows.
    call_.args = {call_.args[0], call_.args[1], {megatron_ ? (vocabulary_ + ranks_ - 1) / ranks_ : vocabulary_}};
    call_.kwargs.clear();
    const Dims& out = shape(call_.outputs[0]);
    const bool scatter = sequence_ && out.size() == 3 && out[1] % ranks_ == 0;
    reduce_output(scatter, 1);
  }

  void attention() {
    for (std::size_t i = 0; i < 3; ++i) {
      const ValueId id = argument(i);
      const Layout l = layout(id);
      if (l.sequence) return gather_arguments(true);
      if (l.whole() || l.dim != 1) conflict(merged());
    }
    layout(call_.outputs[0]) = merged();
    layout(call_.outputs[0]).dim = 1;
    if (const ValueId mask = argument(3); mask.valid()) {
      const Dims& m = shape(mask);
      if (m.size() == 4 && m[1] > 1 && layout(mask).whole()) conflict(merged());
    }
  }

  /// Layers behind all arguments.
  Layout merged() {
    Layout all;
    for_each_value(call_, [&](ValueId id) {
      const Layout& l = layout(id);
      if (l.whole()) return;
      all.dim = std::max(all.dim, l.dim);
      all.sequence = all.sequence || l.sequence;
      all.origins.insert(l.origins.begin(), l.origins.end());
    });
    return all;
  }

  /// Arguments line up at the last dimension; parameters and whole tensors of full size along the cut are cut as well.
  void elementwise() {
    const ValueId out = call_.outputs[0];
    const int rank = shape(out).size();
    int dim = -1;
    const Layout all = merged();
    bool ok = true;
    for_each_value(call_, [&](ValueId id) {
      const Layout& l = layout(id);
      if (l.whole()) return;
      const int here = l.dim + rank - shape(id).size();
      if (dim >= 0 && dim != here) ok = false;
      dim = here;
    });
    for_each_value(call_, [&](ValueId id) {
      if (!layout(id).whole()) return;
      const Dims& s = shape(id);
      const int d = dim - (rank - s.size());
      if (d < 0 || s.size() == 0 || s[d] == 1) return;
      if (is_parameter(id) && !all.sequence)
        cut(id, d);
      else
        ok = false;
    });
    if (!ok) {
      if (all.sequence) return gather_arguments(true);
      conflict(all);
    }
    for (ValueId o : call_.outputs)
      if (o.valid()) layout(o) = {dim, all.sequence, all.origins};
  }

  /// The dimension of `out` that holds the cut dimension of `in`, as its outermost factor; -1 where none does.
  int mapped(const Dims& in, const Dims& out, int dim) const {
    std::int64_t before = 1;
    for (int i = 0; i < dim; ++i) before *= in[i];
    std::int64_t prefix = 1;
    for (int j = 0; j < out.size(); ++j) {
      if (prefix == before && out[j] > 1) {
        if (out[j] % ranks_ == 0) return j;
        // Queries, keys and values in one layer: the ranks share the heads of each of the three.
        if (j + 1 < out.size() && out[j] < in[dim] && out[j] <= 4 && out[j + 1] % ranks_ == 0) return j + 1;
        return -1;
      }
      prefix *= out[j];
    }
    return -1;
  }

  /// Megatron-LM's activations begin with the sequence: tokens stay apart where batch and sequence become one
  /// dimension, or two again.
  int mapped_tokens(const Dims& in, const Dims& out, const Layout& l) const {
    if (!megatron_ || !l.sequence) return -1;
    if (l.dim == 1 && in.size() == 3 && out.size() == 2 && out[0] == in[0] * in[1]) return 0;
    if (l.dim == 0 && in.size() == 2 && out.size() == 3 && in[0] == out[0] * out[1] && out[1] % ranks_ == 0) return 1;
    return -1;
  }

  void view() {
    const ValueId x = argument(0), out = call_.outputs[0];
    const Layout l = layout(x);
    int to = mapped_tokens(shape(x), shape(out), l);
    if (to < 0) to = mapped(shape(x), shape(out), l.dim);
    if (to < 0) {
      if (l.sequence) return gather_arguments(true);
      const Dims& o = shape(out);
      if (o.size() > shape(x).size()) require_divisible(o[o.size() - 2], "attention heads");
      conflict(l);
    }
    if (call_.args.size() > 1)
      if (auto* sizes = std::get_if<Arg::List>(&call_.args[1].value))
        divide((*sizes)[static_cast<std::size_t>(to)], shape(out)[to]);
    layout(out) = {to, l.sequence, l.origins};
  }

  void divide(Arg& size, std::int64_t full) const {
    if (auto* n = std::get_if<std::int64_t>(&size.value); n && *n == full) *n /= ranks_;
    // The length of the whole sequence, asked of the ids.
    if (megatron_ && std::holds_alternative<ValueId>(size.value)) size = {full / ranks_};
  }

  std::int64_t number(std::size_t i, std::int64_t otherwise) const {
    if (i >= call_.args.size()) return otherwise;
    const auto* n = std::get_if<std::int64_t>(&call_.args[i].value);
    return n ? *n : otherwise;
  }

  void rearrange(std::string_view op) {
    const ValueId x = argument(0), out = call_.outputs[0];
    Layout l = layout(x);
    const int rank = shape(x).size();
    const auto normal = [](std::int64_t d, int n) { return static_cast<int>(d < 0 ? d + n : d); };
    if (op == "transpose") {
      const int a = normal(number(1, 0), rank), b = normal(number(2, 1), rank);
      l.dim = l.dim == a ? b : l.dim == b ? a : l.dim;
    } else if (op == "permute") {
      const auto& order = std::get<Arg::List>(call_.args[1].value);
      for (std::size_t i = 0; i < order.size(); ++i)
        if (normal(std::get<std::int64_t>(order[i].value), rank) == layout(x).dim) l.dim = static_cast<int>(i);
    } else if (op == "unsqueeze") {
      if (normal(number(1, 0), rank + 1) <= l.dim) ++l.dim;
    } else if (op == "squeeze" || op == "select") {
      const int d = normal(number(1, 0), rank);
      if (d == l.dim) return l.sequence ? gather_arguments(true) : conflict(l);
      if (d < l.dim) --l.dim;
    } else {
      l.dim += shape(out).size() - rank;
      if (auto* sizes = std::get_if<Arg::List>(&call_.args[1].value))
        divide((*sizes)[static_cast<std::size_t>(l.dim)], shape(out)[l.dim]);
    }
    layout(out) = l;
  }

  void concatenate() {
    const Layout all = merged();
    const auto* list = std::get_if<Arg::List>(&call_.args[0].value);
    bool ok = list != nullptr;
    if (list)
      for (const Arg& a : *list) {
        const auto* id = std::get_if<ValueId>(&a.value);
        ok = ok && id && layout(*id).dim == all.dim;
      }
    const int rank = shape(call_.outputs[0]).size();
    const std::int64_t d = number(1, 0);
    if (!ok || static_cast<int>(d < 0 ? d + rank : d) == all.dim || base_name(call_.op) == "stack") {
      if (all.sequence) return gather_arguments(true);
      conflict(all);
    }
    layout(call_.outputs[0]) = all;
  }

  void part(std::string_view op) {
    const ValueId x = argument(0);
    Layout l = layout(x);
    const int rank = shape(x).size();
    const bool size_first = op == "split" || op == "split_with_sizes" || op == "chunk";
    const std::int64_t d = number(size_first ? 2 : 1, 0);
    const int dim = static_cast<int>(d < 0 ? d + rank : d);
    if (op == "unbind") {
      if (dim == l.dim) conflict(l);
      if (dim < l.dim) --l.dim;
    } else if (dim == l.dim) {
      const bool everything = op == "slice" && shape(call_.outputs[0]) == shape(x);  // x[:, 0:]
      if (l.sequence && !everything) return gather_arguments(true);
      // Queries, keys and values in one layer: each rank holds its heads of all three.
      if (op == "split" || op == "split_with_sizes") {
        if (auto* list = std::get_if<Arg::List>(&call_.args[1].value))
          for (Arg& a : *list) divide_exactly(a, l);
        else
          divide_exactly(call_.args[1], l);
      } else if (op != "chunk") {
        divide_exactly(call_.args[2], l);
        if (call_.args.size() > 3) divide_exactly(call_.args[3], l);
      }
    }
    for (ValueId out : call_.outputs)
      if (out.valid()) layout(out) = l;
  }

  void divide_exactly(Arg& size, const Layout& l) const {
    auto* n = std::get_if<std::int64_t>(&size.value);
    if (!n) conflict(l);
    if (*n == INT64_MAX) return;
    if (*n % ranks_ != 0) conflict(l);
    *n /= ranks_;
  }

  /// Ops that work along some dimensions and leave the others alone.
  void along_other_dims(std::string_view op) {
    const Layout all = merged();
    const ValueId x = argument(0), out = call_.outputs[0];
    const int rank = shape(x).size(), result = shape(out).size();
    bool ok = true;
    if (op == "matmul" || op == "bmm") {
      const ValueId y = argument(1);
      ok = y.valid() && layout(x).dim == layout(y).dim && all.dim < rank - 2 && shape(y).size() == rank;
    } else if (op == "layer_norm" || op == "rms_norm" || op == "_fused_rms_norm") {
      const auto* normalized = std::get_if<Arg::List>(&call_.args[1].value);
      ok = all.dim < rank - static_cast<int>(normalized ? normalized->size() : 1);
    } else if (call_.args.size() > 1) {
      const auto touches = [&](const Arg& a) {
        const auto* n = std::get_if<std::int64_t>(&a.value);
        return n && static_cast<int>(*n < 0 ? *n + rank : *n) == all.dim;
      };
      if (const auto* list = std::get_if<Arg::List>(&call_.args[1].value)) {
        for (const Arg& a : *list) ok = ok && !touches(a);
      } else {
        ok = !touches(call_.args[1]);
      }
    } else {
      ok = false;
    }
    ok = ok && all.dim < result && shape(out)[all.dim] == shape(x)[all.dim];
    if (!ok) {
      if (all.sequence) return gather_arguments(true);
      conflict(all);
    }
    for (ValueId o : call_.outputs)
      if (o.valid()) layout(o) = all;
  }

  Tape tape_;
  const std::int64_t ranks_;
  const bool sequence_;
  const bool megatron_;  ///< layers of Megatron-LM instead of DTensor's
  const bool training_;
  std::vector<std::optional<Dims>> shapes_;  ///< of the whole values, whatever a rank holds of them
  const std::set<std::size_t>& keep_whole_;
  std::vector<Layout> layouts_;
  std::vector<int> cut_;           ///< per value: dimension along which a parameter is cut
  std::vector<ValueId> gathered_;  ///< per value: its whole form, once somebody needed it
  std::vector<bool> in_block_;
  std::int64_t vocabulary_ = 0;
  std::optional<std::size_t> head_;  ///< the call whose result stays cut by the vocabulary
  std::size_t at_ = 0;
  Call call_;
  std::vector<Call> after_;
};

}  // namespace

Tape shard_tensors(const Tape& tape, const TrainingSetup& setup, const Device& device) {
  const auto shapes = value_shapes(tape, setup, device);
  check_heads(tape, shapes, setup.parallel.tensor);
  std::set<std::size_t> keep_whole;
  for (;;) {
    try {
      Sharder sharder(tape, setup, shapes, keep_whole);
      return sharder.run();
    } catch (const Conflict& c) {
      const std::size_t before = keep_whole.size();
      keep_whole.insert(c.origins.begin(), c.origins.end());
      if (keep_whole.size() == before)
        fail(ErrorKind::usage, "the layers of this model cannot be cut into tensor-parallel parts",
             setting(Field::tensor_parallel), "docs/parallelism.md says which can");
    }
  }
}

}  // namespace memplan
