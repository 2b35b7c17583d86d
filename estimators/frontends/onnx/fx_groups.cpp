#include "estimators/frontends/onnx/fx_groups.h"

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/folded_indices.h"
#include "estimators/frontends/onnx/fx_again.h"
#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/frontends/onnx/fx_recurrent.h"
#include "estimators/frontends/onnx/fx_rewrites.h"
#include "estimators/frontends/onnx/metadata.h"
#include "estimators/frontends/onnx/result_sizes.h"
#include "estimators/frontends/onnx/stored_layouts.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

namespace {

/// An op whose one result is the output of its last node.
bool is_plain(const FxGroup& group, const Graph& g) {
  const std::string_view t = group.text.target;
  if (t == "torch.ops.prims.var.default") return true;
  if (t.substr(0, 15) != "torch.ops.aten." || has_no_effect(t) || t.find("batch_norm") != std::string_view::npos ||
      t.find(".sym_") != std::string_view::npos)
    return false;
  for (std::string_view many : {"split", "unbind", "chunk", "lstm", "gru", "rnn_", "meshgrid", "broadcast_tensors"})
    if (t.substr(15).find(many) == 0) return false;
  if (outputs_of(op_of_target(t)) != 1) return false;
  const auto& outputs = g.nodes[static_cast<std::size_t>(group.nodes.back())].outputs;
  return std::count_if(outputs.begin(), outputs.end(), [](GraphValueId id) { return id >= 0; }) == 1 &&
         !outputs.empty() && outputs[0] >= 0;
}

/// The op has no form with a number in that place: what is one number there is a tensor of one element.
bool takes_tensor(std::string_view op, std::size_t position) {
  for (std::string_view made : {"aten::arange", "aten::full", "aten::scalar_tensor", "aten::zeros", "aten::ones",
                                "aten::empty", "aten::eye", "aten::linspace"})
    if (op.starts_with(made)) return false;
  return position == 0 || op.starts_with("aten::index_put");
}

/// Why a value can be in the place of one whose name is gone.
enum class Instead : std::uint8_t { like, reshaped, of_lost };
using Names = std::vector<std::string_view>;

class GroupMatcher {
 public:
  GroupMatcher(const View& v, const Graph& g)
      : v_(v), g_(g), program_(read_fx_program(g)), names_(values_of_names(g, program_)) {}

  std::vector<std::optional<Found>> run() {
    group_of_.assign(g_.nodes.size(), -1);
    for (const FxGroup& group : program_.groups)
      if (group.name >= 0 && (is_plain(group, g_) || is_recurrent(group)))
        for (std::int32_t n : group.nodes)
          group_of_[at(n)] = static_cast<std::int32_t>(&group - program_.groups.data());
    std::vector<std::optional<Found>> by_group(program_.groups.size());
    for (std::size_t i = 0; i < program_.groups.size(); ++i)
      if (const FxGroup& group = program_.groups[i];
          !is_recurrent(group) && group_of_[at(group.nodes.back())] == static_cast<std::int32_t>(i))
        by_group[i] = match(group, static_cast<int>(i));
    for (auto& [i, call] : match_recurrent(v_, program_, names_)) by_group[i] = std::move(call);
    drop_read_inside(by_group);
    std::vector<std::optional<Found>> out(g_.nodes.size());
    for (std::size_t i = 0; i < by_group.size(); ++i)
      if (by_group[i]) out[at(program_.groups[i].nodes.back())] = std::move(by_group[i]);
    return out;
  }

 private:
  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

  /// Arguments with FX names -> arguments with graph values; collects names that nothing in the graph has.
  /// `tensors`: the op takes no number in the place of a tensor.
  void resolve(Arg& arg, std::vector<GraphValueId>& reads, Names& unknown, bool tensors = false) const {
    if (auto* list = std::get_if<Arg::List>(&arg.value)) {
      for (Arg& item : *list) resolve(item, reads, unknown, tensors);
      return;
    }
    const auto* name = std::get_if<ValueId>(&arg.value);
    if (!name) return;
    const std::string_view text = program_.names[at(name->index)];
    const auto reshaped = reshaped_.find(text);
    const auto it = reshaped != reshaped_.end() ? reshaped : names_.find(text);
    if (reshaped == reshaped_.end() && it == names_.end()) {
      if (std::find(unknown.begin(), unknown.end(), text) == unknown.end()) unknown.push_back(text);
      return;
    }
    const Inferred& f = v_.inferred[it->second];
    const bool given = std::find(g_.inputs.begin(), g_.inputs.end(), it->second) != g_.inputs.end();
    const bool number = !given && !tensors && f.is_one_number() && f.rank() <= 1;
    if (number && f.dtype != DType::boolean && !f.contents->floating) {
      arg.value = f.contents->integers[0];
      return;
    }
    if (number && f.contents->floating && op_of_name(text).starts_with("scalar_tensor")) {  // of "loss / x.size(0)"
      arg.value = f.contents->floats[0];
      return;
    }
    reads.push_back(it->second);
    arg.value = ValueId{it->second};  // a graph value, for the time being
  }

  /// Copies and views that an optimizer took out, and calls that it merged with an equal one: what the nodes of the
  /// group read instead of them. False where that is not clear.
  bool stand_in(const FxGroup& group, const std::vector<GraphValueId>& reads, Names unknown, std::int32_t index) {
    const std::vector<FoldedIndex> folded = folded_indices(g_, program_, group, unknown);
    std::vector<GraphValueId> open, known = reads;
    for (const FoldedIndex& f : folded) {
      std::erase(unknown, f.name);
      known.push_back(f.stored);
    }
    for (std::int32_t n : group.nodes)
      for (GraphValueId id : v_.node(n).inputs) {
        const bool number = id >= 0 && v_.inferred[id].contents && !is_made(id) && !is_folded_parameter(id) &&
                            !is_part(id) && !(is_merged(id) && std::ranges::any_of(unknown, changes_elements));
        if (id < 0 || number || is_inner(id, index)) continue;
        if (std::ranges::find(known, id) == known.end()) open.push_back(known.emplace_back(id));
      }
    if (open.size() != unknown.size()) return open.empty() && unknown.size() == 1 && index_of_list(group, unknown[0]);
    const bool attention = group.text.target.find("scaled_dot_product_attention") != std::string_view::npos;
    std::vector<Instead> how;
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (is_like(open[i], unknown[i]))
        how.push_back(Instead::like);
      else if (attention && is_reshape(unknown[i]) && v_.sizes(open[i]))
        how.push_back(Instead::reshaped);
      else if (is_merged(open[i]) && changes_elements(unknown[i]))
        how.push_back(Instead::of_lost);
      else
        return false;
    }
    for (const FoldedIndex& f : folded) make_index_again(f.name, f.stored, f.sizes);
    stood_in_.insert(unknown.begin(), unknown.end());
    for (std::size_t i = 0; i < open.size(); ++i) {
      (how[i] == Instead::reshaped ? reshaped_ : names_).emplace(unknown[i], open[i]);
      if (const auto made = made_of_stored_.find(open[i]);
          made != made_of_stored_.end() && !may_show_all(op_of_name(unknown[i])))
        again_.emplace(unknown[i], Again{made->second});
      else if (how[i] == Instead::of_lost)
        again_.emplace(unknown[i], Again{folded_call(g_, open[i], unknown[i]), true});
      else if (how[i] == Instead::like && is_merged(open[i]) && folded_op(g_.initializers.at(open[i]).name))
        again_.emplace(unknown[i], Again{folded_call(g_, open[i], g_.initializers.at(open[i]).name)});
    }
    return true;
  }

  /// `x[:, [-1]]` makes a tensor of its list, "clone_3", every time; the file has one for all, joined with others to
  /// [1, 1] for a node that gathers. False where the group is no such call.
  bool index_of_list(const FxGroup& group, std::string_view name) {
    if (op_of_name(name) != "clone" || group.text.target != "torch.ops.aten.index.Tensor") return false;
    std::vector<GraphValueId> lists;
    for (const std::int32_t n : group.nodes)
      for (const GraphValueId id : v_.node(n).inputs)
        if (const auto t = g_.initializers.find(id);
            v_.node(n).op_type.starts_with("Gather") && t != g_.initializers.end() && t->second.dtype == DType::int64)
          lists.push_back(id);
    if (lists.size() != 1 || g_.initializers.at(lists[0]).sizes.empty()) return false;
    make_index_again(name, lists[0], {count_of(g_.initializers.at(lists[0]).sizes)});
    return true;
  }

  /// What the file has once, in another form, is made for the call that reads it.
  void make_index_again(std::string_view name, GraphValueId stored, Sizes sizes) {
    again_.emplace(name, Again{std::make_shared<Call>(made_index(sizes))});
    names_.emplace(name, stored);
    indices_.emplace(stored, std::move(sizes));
  }

  /// Whether a value can be in the place of what a call of that name made: the call did nothing where the export ran,
  /// or the value is made by an equal call. A transpose that was joined with the next one is neither.
  bool is_like(GraphValueId id, std::string_view name) const {
    const std::string_view op = op_of_name(name);
    for (std::string_view copy : {"clone", "slice", "alias", "detach", "dropout", "native_dropout", "contiguous", "to",
                                  "_to_copy", "type_as", "expand", "lift_fresh_copy"})
      if (op == copy) return true;
    // A part of a list, which became one of a node's results: of in_proj_weight.split([n, 2 * n]).
    if (op == "getitem") return v_.producer(id) >= 0 && v_.node(v_.producer(id)).outputs.size() > 1;
    const auto stored = g_.initializers.find(id);
    const std::string_view made = stored != g_.initializers.end() ? std::string_view(stored->second.name)
                                                                  : std::string_view(g_.values[at(id)].name);
    return op_of_name(made) == op;
  }

  static bool is_reshape(std::string_view name) {
    const std::string_view op = op_of_name(name);
    return op == "view" || op == "_unsafe_view" || op == "reshape";
  }

  /// A tensor of the program whose contents happen to be known, as those of "torch.arange(n)" are.
  bool is_made(GraphValueId id) const {
    const std::int32_t by = v_.producer(id);
    return by >= 0 && group_of_[at(by)] >= 0 && v_.inferred[id].rank() > 0;
  }

  /// A part of a parameter that may be small enough for its contents to be known: of in_proj_bias.
  bool is_part(GraphValueId id) const {
    const std::int32_t by = v_.producer(id);
    if (by < 0 || v_.node(by).op_type != "Split" || v_.node(by).inputs.empty()) return false;
    const auto whole = g_.initializers.find(v_.node(by).inputs[0]);
    return whole != g_.initializers.end() && is_floating(whole->second.dtype);
  }

  /// What an optimizer made of a parameter may be small enough for its contents to be known.
  bool is_folded_parameter(GraphValueId id) const {
    const auto it = g_.initializers.find(id);
    return it != g_.initializers.end() && is_merged(id) && folded_op(it->second.name) && !folded_from(g_, id).empty();
  }

  /// Made within a group of nodes, and not its result.
  bool is_inner(GraphValueId id, std::int32_t index) const {
    const std::int32_t by = v_.producer(id);
    if (by < 0) return false;
    const std::int32_t group = group_of_[at(by)];
    return group >= 0 && (group == index || by != program_.groups[at(group)].nodes.back());
  }

  std::optional<Found> match(const FxGroup& group, std::int32_t index) {
    const std::int32_t last = group.nodes.back();
    auto call = std::make_shared<Call>();
    Found f;
    for (int round = 0;; ++round) {
      call->op = op_of_target(group.text.target);
      call->args = group.text.args;
      call->kwargs.clear();
      for (const auto& [key, value] : group.text.kwargs)
        if (key != "device" && key != "pin_memory" && key != "layout") call->kwargs.emplace_back(key, value);
      if (gives_sizes(call->op)) take_sizes(*call, v_.output(last));
      f.reads.clear();
      Names unknown;
      for (std::size_t i = 0; i < call->args.size(); ++i)
        resolve(call->args[i], f.reads, unknown, takes_tensor(call->op, i));
      for (auto& [key, a] : call->kwargs) resolve(a, f.reads, unknown);
      if (unknown.empty()) break;
      if (round > 0 || !stand_in(group, f.reads, unknown, index)) return std::nullopt;
    }
    if (!fits(group, *call, last)) return std::nullopt;
    f.nodes = group.nodes;
    f.op = "ATen calls";
    f.from = "the exporter's fx_node text";
    if (std::ranges::all_of(f.reads, [&](GraphValueId id) { return is_merged(id); }))
      made_of_stored_[v_.output(last)] = call;
    f.emit = [call, last, reshapes = reshapes_of(group, *call), again = made_again(group, *call), &v = v_](Emit& e) {
      Call c = *call;
      std::map<std::int32_t, ValueId> instead;
      for (const auto& [id, made] : again) instead[id] = call_again(made, e);
      for (std::size_t i = 0; i < c.args.size(); ++i)
        if (const auto* id = std::get_if<ValueId>(&c.args[i].value);
            id && takes_tensor(c.op, i) && !instead.count(id->index) && e.is_number(id->index))
          instead[id->index] = scalar_tensor(id->index, e);
      replace_values(c, [&](ValueId id) {
        const auto it = instead.find(id.index);
        return Arg{it == instead.end() ? e.tensor(id.index) : it->second};
      });
      for (const auto& [i, sizes] : reshapes) c.args[i] = {e.call("aten::reshape", {c.args[i], list_of(sizes)})};
      if (c.op != "aten::clone" || !c.kwargs.empty() || !asks_for_copy(v.node(last))) rewrite(c, e.setup);
      e.call_for(v.at(last), std::move(c.op), std::move(c.args), std::move(c.kwargs));
    };
    return f;
  }

  /// The call gives what its nodes give. Otherwise an optimizer took the last of them out, or what stands in for a
  /// value is none.
  bool fits(const FxGroup& group, const Call& call, std::int32_t last) const {
    bool stands_in = false;
    const auto look = [&](ValueId name) { stands_in = stands_in || stood_in_.count(program_.names[at(name.index)]); };
    for (const Arg& a : group.text.args) for_each_value(a, look);
    for (const auto& [key, a] : group.text.kwargs) for_each_value(a, look);
    std::vector<Sizes> inputs;
    bool known = v_.sizes(v_.output(last)).has_value();
    for_each_value(call, [&](ValueId id) {
      known = known && v_.sizes(id.index);
      if (known) inputs.push_back(indices_.contains(id.index) ? indices_.at(id.index) : *v_.sizes(id.index));
    });
    for (const auto& [i, sizes] : reshapes_of(group, call))
      if (i < inputs.size()) inputs[i] = sizes;
    if (!known || inputs.empty()) return !stands_in || inputs.empty();
    return gives(call.op, inputs, *v_.sizes(v_.output(last))).value_or(!stands_in);
  }

  /// A parameter that may be there once for several modules.
  bool is_merged(GraphValueId id) const {
    const auto it = g_.initializers.find(id);
    return it != g_.initializers.end() && is_floating(it->second.dtype) && !it->second.sizes.empty() &&
           may_be_merged(it->second.sizes);
  }

  /// torch.tensor(1) of Python, which lives on the host.
  static ValueId scalar_tensor(GraphValueId id, Emit& e) {
    TapeValue v;
    v.name = e.name_of(id);
    v.kind = ValueKind::constant;
    v.dtype = e.inferred[id].dtype.value_or(DType::float32);
    v.on_host = true;
    const ValueId made = e.tape.add_value(std::move(v));
    e.tape.buffers.push_back(made);
    return made;
  }

  /// "torch.arange(n)" or "1.0 + self.weight" that was merged with an equal one is made once more for the call that
  /// reads it.
  std::vector<std::pair<GraphValueId, Again>> made_again(const FxGroup& group, const Call& call) {
    std::vector<std::pair<GraphValueId, Again>> out;
    const auto look = [&](const Arg& named, const Arg& resolved) {
      const auto *name = std::get_if<ValueId>(&named.value), *id = std::get_if<ValueId>(&resolved.value);
      const auto it = name && id ? again_.find(program_.names[at(name->index)]) : again_.end();
      if (it == again_.end()) return;
      out.emplace_back(id->index, it->second);
      if (indices_.contains(id->index)) names_.erase(it->first);  // the next call may have it in another form
      again_.erase(it);
    };
    for (std::size_t i = 0; i < call.args.size() && i < group.text.args.size(); ++i) {
      const auto *named = std::get_if<Arg::List>(&group.text.args[i].value),
                 *resolved = std::get_if<Arg::List>(&call.args[i].value);
      if (!named || !resolved || named->size() != resolved->size())
        look(group.text.args[i], call.args[i]);
      else
        for (std::size_t k = 0; k < named->size(); ++k) look((*named)[k], (*resolved)[k]);
    }
    return out;
  }

  /// Keys and values of attention whose last reshape was joined with another one get it back: heads as in the query.
  std::vector<std::pair<std::size_t, Sizes>> reshapes_of(const FxGroup& group, const Call& call) const {
    std::vector<std::pair<std::size_t, Sizes>> out;
    const auto value_at = [](const std::vector<Arg>& args, std::size_t i) {
      return i < args.size() ? std::get_if<ValueId>(&args[i].value) : nullptr;
    };
    for (std::size_t i : {1u, 2u}) {
      const auto *name = value_at(group.text.args, i), *given = value_at(call.args, i), *q = value_at(call.args, 0);
      if (!name || !given || !q || !reshaped_.count(program_.names[at(name->index)])) continue;
      const auto &query = v_.sizes(q->index), &sizes = v_.sizes(given->index);
      if (!query || !sizes || query->size() != 4 || sizes->empty() || sizes->back() <= 0) continue;
      const std::int64_t heads = (*query)[0] * (*query)[1];
      if (heads > 0)
        out.push_back({i, {(*query)[0], (*query)[1], count_of(*sizes) / heads / sizes->back(), sizes->back()}});
    }
    return out;
  }

  /// Sizes that were worked out by calls which are gone.
  void take_sizes(Call& call, GraphValueId result) const {
    const auto& sizes = v_.sizes(result);
    for (Arg& a : call.args)
      if (auto* list = std::get_if<Arg::List>(&a.value)) {
        const bool open =
            std::ranges::any_of(*list, [](const Arg& n) { return std::holds_alternative<ValueId>(n.value); });
        if (open && sizes && sizes->size() == list->size()) a = list_of(*sizes);
        return;
      }
  }

  /// A node outside of a group may read what is made inside of it only if its own call is told by text as well.
  void drop_read_inside(std::vector<std::optional<Found>>& by_group) const {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < by_group.size(); ++i) {
        if (!by_group[i] || is_recurrent(program_.groups[i])) continue;
        const auto& nodes = program_.groups[i].nodes;
        const auto needed_outside = [&](GraphValueId id) {
          return id >= 0 && !v_.inferred[id].contents &&
                 std::ranges::any_of(v_.readers_of(id), [&](std::int32_t reader) {
                   if (reader < 0) return true;
                   const std::int32_t group = group_of_[at(reader)];
                   return group < 0 || !by_group[at(group)];
                 });
        };
        for (std::int32_t n : nodes)
          if (n != nodes.back() && by_group[i] && std::ranges::any_of(v_.node(n).outputs, needed_outside)) {
            by_group[i].reset();
            changed = true;
          }
      }
    }
  }

  const View& v_;
  const Graph& g_;
  const FxProgram program_;
  ValuesOfNames names_;  ///< and, while groups are matched, what stands in for names that are gone
  std::unordered_map<GraphValueId, std::shared_ptr<const Call>> made_of_stored_;  ///< or of nothing at all
  std::unordered_map<std::string_view, Again> again_;                             ///< by names that are gone
  std::unordered_set<std::string_view> stood_in_;                                 ///< names that are gone
  std::unordered_map<GraphValueId, Sizes> indices_;                               ///< that are there in another form
  ValuesOfNames reshaped_;              ///< names that are gone, and what was reshaped to make them
  std::vector<std::int32_t> group_of_;  ///< by node: the group of one plain call that it belongs to, else -1
};

}  // namespace

std::vector<std::optional<Found>> match_fx_groups(const View& v, const Graph& g) { return GroupMatcher(v, g).run(); }

}  // namespace memplan::onnx_format
