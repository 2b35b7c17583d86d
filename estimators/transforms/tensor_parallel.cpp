#include "estimators/transforms/tensor_parallel.h"

#include <fmt/format.h>

#include <memory>
#include <set>
#include <string_view>

#include "estimators/base/error.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/setup/field.h"
#include "estimators/setup/strategies.h"
#include "estimators/tape/uses.h"
#include "estimators/transforms/blocks.h"
#include "estimators/transforms/tensor_rules.h"
#include "estimators/transforms/value_shapes.h"

namespace memplan {

namespace {

TensorStyle style_of(const TrainingSetup& setup) {
  TensorStyle style = in_megatron(setup.parallel) ? megatron_style : dtensor_style;
  if (setup.mode == Mode::inference) style.gathers_inside = style.cut_logits = false;
  // The layer's output_layouts say so, whatever is done with the logits.
  if (setup.parallel.loss_parallel) style.cut_logits = true;
  return style;
}

/// By scope, whether it lies in a block, which is where layers are cut.
std::vector<bool> scopes_in_blocks(const Tape& tape, const ParallelSetup& p) {
  const auto blocks = outermost(
      tape, named_modules(tape, p.blocks.empty() ? std::vector<std::string>{"blocks"} : p.blocks, Field::blocks));
  std::vector<bool> inside(tape.scopes.size(), false);
  for (std::size_t s = 0; s < tape.scopes.size(); ++s)
    for (auto at = static_cast<std::int32_t>(s); at >= 0; at = tape.scopes[static_cast<std::size_t>(at)].parent)
      if (blocks.count(at)) inside[s] = true;
  return inside;
}

/// One try at cutting the layers of a tape. Calls are copied only where they change: a try may end at any of them, and
/// most tries do.
class Sharder {
 public:
  Sharder(const Tape& given, const TrainingSetup& setup, const std::vector<std::optional<Dims>>& shapes,
          const std::vector<bool>& in_block, const std::set<std::size_t>& keep_whole)
      : given_(given),
        ranks_(setup.parallel.tensor),
        sequence_(setup.parallel.sequence_parallel),
        divided_loss_(setup.parallel.loss_parallel),
        style_(style_of(setup)),
        values_(given.values),
        outputs_(given.outputs),
        changed_(given.calls.size()),
        shapes_(shapes),
        in_block_(in_block),
        keep_whole_(keep_whole),
        layouts_(given.values.size()),
        cut_(given.values.size(), -1),
        gathered_(given.values.size()) {}

  /// The rank's tape, or the layers that have to stay whole.
  std::variant<Tape, Conflict> run() {
    for (std::size_t i = 0; i < given_.calls.size(); ++i) {
      if (!concerns(given_.calls[i])) continue;
      at_ = i;
      call_ = given_.calls[i];
      if (std::optional<Conflict> conflict = visit()) return std::move(*conflict);
      changed_[i] = std::make_unique<Change>(Change{std::move(before_), std::move(call_), std::move(after_)});
      before_.clear();
      after_.clear();
    }
    if (divided_loss_ && !head_)
      fail(ErrorKind::usage, "this model has no layer of logits that can be divided by the vocabulary",
           setting(Field::loss_parallel), "leave it out");
    if (!given_.calls.empty()) call_.scope = given_.calls.back().scope;
    for (ValueId& id : outputs_)
      if (const Layout l = layout(id); !l.whole() && !is_logits(l)) {
        if (!l.sequence) return Conflict{l.origins};
        id = gather(id, l.dim, false);
      }
    for (std::size_t i = 0; i < cut_.size(); ++i)
      if (cut_[i] >= 0) {
        auto& size = values_[i].sizes[static_cast<std::size_t>(cut_[i])];
        size = (size + ranks_ - 1) / ranks_;
      }
    return joined();
  }

 private:
  /// TensorStyle::cut_logits
  bool is_logits(const Layout& l) const { return head_ && l.origins == std::set<std::size_t>{*head_}; }

  /// The given tape with the changed calls.
  Tape joined() {
    Tape tape = given_;
    tape.values = std::move(values_);
    tape.outputs = std::move(outputs_);
    std::vector<Call> calls = std::move(tape.calls);
    tape.calls.clear();
    tape.calls.reserve(calls.size());
    const auto take = [&](std::vector<Call>& more) {
      for (Call& c : more) tape.calls.push_back(std::move(c));
    };
    std::vector<std::int32_t> new_index(calls.size());
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (changed_[i]) take(changed_[i]->before);
      tape.calls.push_back(std::move(changed_[i] ? changed_[i]->call : calls[i]));
      tape.calls.back().last_uses.clear();
      if (changed_[i]) take(changed_[i]->after);
      new_index[i] = static_cast<std::int32_t>(tape.calls.size()) - 1;
    }
    take(before_);
    for (CheckpointRegion& region : tape.checkpoints) {
      region.first = region.first == 0 ? 0 : new_index[static_cast<std::size_t>(region.first) - 1] + 1;
      region.last = new_index[static_cast<std::size_t>(region.last)];
    }
    mark_last_uses(tape);
    return tape;
  }

  // --- what is where -----------------------------------------------------------------------------------------------

  bool in_block() const { return call_.scope >= 0 && in_block_[static_cast<std::size_t>(call_.scope)]; }

  const TapeValue& value(ValueId id) const { return values_[static_cast<std::size_t>(id.index)]; }
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

  bool is_ids(ValueId id) const {
    return id.valid() && (value(id).kind == ValueKind::user_input || ids_.count(id.index) > 0);
  }

  ValueId owner(ValueId parameter) const {
    return value(parameter).same_storage_as.valid() ? value(parameter).same_storage_as : parameter;
  }

  /// Cuts a parameter and those tied to it.
  void cut(ValueId parameter, int dim) {
    const ValueId first = owner(parameter);
    for (ValueId id : given_.parameters)
      if (owner(id) == first) cut_[static_cast<std::size_t>(id.index)] = dim;
  }

  std::string place() const {
    return call_.scope < 0 ? std::string() : given_.scopes[static_cast<std::size_t>(call_.scope)].path;
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
    values_.push_back(std::move(v));
    return ValueId{static_cast<std::int32_t>(values_.size() - 1)};
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
    before_.push_back(collective("memplan::all_gather", id, out, {{std::int64_t{dim}}, {ranks_}, {reduce}}));
    gathered_[static_cast<std::size_t>(id.index)] = out;
    return out;
  }

  /// Puts a collective behind the call: its result takes the place of the call's.
  void reduce_output(bool scatter, int dim) {
    const ValueId out = call_.outputs[0];
    const ValueId partial = fresh(out, ".partial");
    call_.outputs[0] = partial;
    after_.push_back(scatter ? collective("memplan::reduce_scatter", partial, out, {{std::int64_t{dim}}, {ranks_}})
                             : collective("memplan::all_reduce", partial, out, {{style_.reduces_in_place}}));
    if (scatter) layout(out) = {dim, true, {}};
  }

  /// Arguments that are cut by the sequence come whole into a call that cannot work on a share.
  std::optional<Conflict> gather_arguments() {
    std::optional<Conflict> conflict;
    replace_values(call_, [&](ValueId id) -> Arg {
      const Layout l = layout(id);
      if (l.whole() || conflict) return {id};
      if (l.sequence) return {gather(id, l.dim, true)};
      conflict = Conflict{l.origins};
      return {id};
    });
    return conflict;
  }

  // --- calls -------------------------------------------------------------------------------------------------------

  /// Whether visit() has anything to do.
  bool concerns(const Call& c) const {
    const std::string_view op = base_name(c.op);
    if (op == "linear" || op == "addmm" || op == "embedding" || op == "view" || op == "reshape") return true;
    bool any = false;
    for_each_value(c, [&](ValueId id) { any = any || !layouts_[static_cast<std::size_t>(id.index)].whole(); });
    return any;
  }

  /// The layers that have to stay whole, where the call cannot be had from cut operands.
  std::optional<Conflict> visit() {
    const std::string_view op = base_name(call_.op);
    if (op == "linear" && is_parameter(argument(1))) return linear(argument(0), argument(1), argument(2), 0, 1);
    if (op == "addmm" && is_parameter(argument(2))) return linear(argument(1), argument(2), argument(0), 1, 0);
    if (op == "embedding" && is_parameter(argument(0))) {
      embedding();
      return std::nullopt;
    }
    // OPT looks its tokens up by input_ids.view(-1, length).
    if ((op == "view" || op == "reshape") && is_ids(argument(0))) ids_.insert(call_.outputs[0].index);
    bool any = false;
    for_each_value(call_, [&](ValueId id) { any = any || !layout(id).whole(); });
    if (!any) return std::nullopt;
    CutCall cut_call{call_, values_, shapes_, layouts_, style_, ranks_, place()};
    CutOutcome outcome = cut_outcome(cut_call);
    if (auto* conflict = std::get_if<Conflict>(&outcome)) return std::move(*conflict);
    if (std::holds_alternative<NeedsWhole>(outcome)) return gather_arguments();
    const Shared& shared = std::get<Shared>(outcome);
    for (const auto& [parameter, dim] : shared.parameters) cut(parameter, dim);
    for (ValueId out : call_.outputs)
      if (out.valid()) layout(out) = shared.results;
    return std::nullopt;
  }

  /// `out_dim`, `in_dim`: of the weight.
  std::optional<Conflict> linear(ValueId x, ValueId weight, ValueId bias, int out_dim, int in_dim) {
    const Dims& w = shape(weight);
    Layout l = layout(x);
    const int last = shape(x).size() - 1;
    if (!l.whole() && !l.sequence) {
      if (l.dim != last) {  // cut by heads that are still apart: the layer works on every head
        layout(call_.outputs[0]) = l;
        return std::nullopt;
      }
      cut(weight, in_dim);
      // GPT-2's Conv1D works on [tokens, features]; its result becomes [batch, sequence, features] in the next view.
      const Dims& out = shape(call_.outputs[0]);
      const int tokens = style_.sequence_first && out.size() == 2 ? 0 : 1;
      const bool scatter = sequence_ && (out.size() == 3 || tokens == 0) && out[tokens] % ranks_ == 0;
      reduce_output(scatter, tokens);
      return std::nullopt;
    }
    const bool head = !in_block() && w[out_dim] == vocabulary_ && vocabulary_ > 0;
    if ((!in_block() && !head) || keep_whole_.count(at_)) {
      if (l.sequence && (l.dim == last || (shape(x).size() < 3 && !style_.sequence_first))) return gather_arguments();
      if (l.sequence) layout(call_.outputs[0]) = l;
      return std::nullopt;
    }
    if (!head) require_divisible(w[out_dim], "features", ranks_, place());
    if (l.sequence && style_.gathers_inside) {
      call_.op = "memplan::column_linear";
      call_.args = {{x}, {weight}, bias.valid() ? Arg{bias} : Arg{}, {std::int64_t{l.dim}}, {ranks_}, {out_dim == 1}};
      call_.kwargs.clear();
    } else if (l.sequence) {
      call_.args[call_.op.starts_with("aten::addmm") ? 1 : 0] = {gather(x, l.dim, true)};
    } else {
      const ValueId copy = fresh(x, ".copy");
      before_.push_back(collective("memplan::all_reduce_backward", x, copy, {{style_.reduces_in_place}}));
      call_.args[call_.op.starts_with("aten::addmm") ? 1 : 0] = {copy};
    }
    cut(weight, out_dim);
    if (is_parameter(bias)) cut(bias, 0);
    const ValueId out = call_.outputs[0];
    const int dim = shape(out).size() - 1;
    if (!head) {
      layout(out) = {dim, false, {at_}};
      return std::nullopt;
    }
    if (style_.cut_logits) {
      head_ = at_;
      layout(out) = {dim, false, {at_}};
      return std::nullopt;
    }
    // ColwiseParallel(output_layouts=Replicate()): the logits are gathered; each rank keeps its part of the gradient.
    const ValueId part = fresh(out, ".part");
    call_.outputs[0] = part;
    after_.push_back(collective("memplan::all_gather", part, out, {{std::int64_t{dim}}, {ranks_}, {false}}));
    return std::nullopt;
  }

  /// The token embedding, by vocabulary: ids of other ranks are masked, the result is summed.
  void embedding() {
    const ValueId ids = argument(1);
    if (!is_ids(ids) || vocabulary_ > 0) return;
    vocabulary_ = shape(argument(0))[0];
    cut(argument(0), 0);
    call_.op = "memplan::vocab_embedding";
    call_.args = {call_.args[0],
                  call_.args[1],
                  {style_.own_rows_of_embedding ? (vocabulary_ + ranks_ - 1) / ranks_ : vocabulary_}};
    call_.kwargs.clear();
    const Dims& out = shape(call_.outputs[0]);
    const bool scatter = sequence_ && out.size() == 3 && out[1] % ranks_ == 0;
    reduce_output(scatter, 1);
  }

  struct Change {
    std::vector<Call> before;  ///< collectives
    Call call;
    std::vector<Call> after;
  };

  const Tape& given_;
  const std::int64_t ranks_;
  const bool sequence_;
  const bool divided_loss_;
  const TensorStyle style_;
  std::vector<TapeValue> values_;  ///< the given ones, then those of collectives
  std::vector<ValueId> outputs_;
  std::vector<std::unique_ptr<Change>> changed_;  ///< by given call
  std::vector<std::optional<Dims>> shapes_;       ///< of the whole values, whatever a rank holds of them
  const std::vector<bool>& in_block_;
  const std::set<std::size_t>& keep_whole_;
  std::vector<Layout> layouts_;
  std::vector<int> cut_;           ///< per value: dimension along which a parameter is cut
  std::vector<ValueId> gathered_;  ///< per value: its whole form, once somebody needed it
  std::set<std::int32_t> ids_;     ///< other shapes of the model's inputs
  std::int64_t vocabulary_ = 0;
  std::optional<std::size_t> head_;  ///< the call whose result stays cut by the vocabulary
  std::size_t at_ = 0;
  Call call_;
  std::vector<Call> before_, after_;
};

}  // namespace

Tape shard_tensors(const Tape& tape, const TrainingSetup& setup, const Device& device) {
  const auto shapes = value_shapes(tape, setup, device);
  check_heads(tape, shapes, setup.parallel.tensor);
  const std::vector<bool> in_block = scopes_in_blocks(tape, setup.parallel);
  std::set<std::size_t> keep_whole;
  for (;;) {
    std::variant<Tape, Conflict> cut = Sharder(tape, setup, shapes, in_block, keep_whole).run();
    if (auto* done = std::get_if<Tape>(&cut)) return std::move(*done);
    // Everything is cut that can be; what turns out to be needed whole is tried again without these layers.
    const Conflict& conflict = std::get<Conflict>(cut);
    const std::size_t before = keep_whole.size();
    keep_whole.insert(conflict.origins.begin(), conflict.origins.end());
    if (keep_whole.size() == before)
      fail(ErrorKind::usage, "the layers of this model cannot be cut into tensor-parallel parts",
           setting(Field::tensor_parallel), "docs/parallelism.md says which can");
  }
}

}  // namespace memplan
