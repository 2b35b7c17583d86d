#include "estimators/frontends/onnx/undo_merging.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "estimators/frontends/onnx/alike_calls.h"
#include "estimators/frontends/onnx/call_reads.h"
#include "estimators/frontends/onnx/changed_graph.h"
#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/folded_indices.h"
#include "estimators/frontends/onnx/fx_rewrites.h"
#include "estimators/frontends/onnx/insert_nodes.h"
#include "estimators/frontends/onnx/lost_calls.h"
#include "estimators/frontends/onnx/lost_twins.h"
#include "estimators/frontends/onnx/metadata.h"
#include "estimators/frontends/onnx/reader_frames.h"
#include "estimators/frontends/onnx/second_calls.h"
#include "estimators/frontends/onnx/signature.h"
#include "estimators/frontends/onnx/undo_transposes.h"
#include "estimators/graph/expression.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

namespace {

constexpr std::size_t most_copies = 100'000;  ///< nodes, of all calls together

class Parter {
 public:
  Parter(const Graph& g, const FxProgram& program)
      : old_(g),
        g_(g),
        program_(program),
        nodes_(g, program),
        result_of_(nodes_.call),
        reads_(g, program, nodes_),
        signature_(signature_of(g)),
        known_(known_names(g, program, signature_)),
        lost_(g, signature_),
        alike_(g, program),
        users_(g, program),
        left_out_(program),
        frames_(g, program, nodes_.maker) {}

  std::optional<Graph> run() {
    for (std::size_t k = 0; k < program_.groups.size(); ++k)
      if (program_.groups[k].name >= 0) look(program_.groups[k]);
    if (before_.empty()) return std::nullopt;
    insert_nodes(g_.write().nodes, before_);
    return g_.take();
  }

 private:
  /// A convolution that became one node with its norm has no text that names what it reads. Where that is pooled and
  /// the next number of the op is left out, two modules pooled it (DLA's trees), and the convolution's did so second.
  void look_at_pooled(const FxGroup& group) {
    if (group.text.target.find("batch_norm") == std::string_view::npos) return;
    for (const CallRead& r : reads_.of(group)) {
      const std::int32_t by = old_.nodes[r.node].op_type == "Conv" && r.input == 0 ? result_of_[at(r.id)] : -1;
      const std::string_view op = by < 0 ? std::string_view() : op_of_name(program_.groups[at(by)].text.name);
      if (!op.ends_with("_pool2d") || !left_out_.may_be(op, program_.groups[at(by)].nodes.back(), false)) continue;
      const std::string name = fmt::format("{}_{}", op, number_of_name(program_.groups[at(by)].text.name) + 1);
      if (!again_.contains(name)) part(group, name, {r});
    }
  }

  void look(const FxGroup& group) {
    look_at_pooled(group);
    const std::vector<ValueId> names = tensors_of(group);
    if (std::ranges::all_of(names, [&](ValueId id) { return known_[at(id.index)]; })) return;
    std::vector<CallRead> reads = reads_.of(group);
    if (group.nodes.size() > 1 || reads.size() != names.size()) return by_rest(group, names, std::move(reads));
    for (std::size_t i = 0; i < names.size(); ++i)
      if (!known_[at(names[i].index)]) part(group, program_.names[at(names[i].index)], {reads[i]});
  }

  /// Where nodes and text do not go together place by place: what one side has alone, in order.
  void by_rest(const FxGroup& group, const std::vector<ValueId>& names, std::vector<CallRead> reads) {
    std::vector<std::string_view> gone, there;
    for (ValueId id : names) {
      const std::string_view name = program_.names[at(id.index)];
      auto& list = known_[at(id.index)] ? there : gone;
      if (std::ranges::find(list, name) == list.end()) list.push_back(name);
    }
    for (const FoldedIndex& f : folded_indices(old_, program_, group, gone)) std::erase(gone, f.name);
    std::vector<std::vector<CallRead>> open;
    for (const CallRead& r : reads) {
      const std::int32_t by = result_of_[at(r.id)];
      if (by < 0 || std::ranges::find(there, program_.groups[at(by)].text.name) != there.end() ||
          std::ranges::find(there, old_.values[at(r.id)].name) != there.end())
        continue;
      const auto same = std::ranges::find_if(open, [&](const auto& o) { return o[0].id == r.id; });
      (same == open.end() ? open.emplace_back() : *same).push_back(r);
    }
    if (open.size() != gone.size()) return;
    // Nodes read in another order than the call does; names and values were made in the same one.
    if (std::ranges::all_of(gone, [&](std::string_view n) { return op_of_name(n) == op_of_name(gone[0]); })) {
      std::ranges::sort(gone, {}, number_of_name);
      std::ranges::sort(open, {}, [&](const auto& o) { return nodes_.maker[at(o[0].id)]; });
    }
    const auto op = [&](const auto& o) { return op_of_name(old_.values[at(o[0].id)].name); };
    for (std::string_view& n : gone)
      if (const auto own = std::ranges::find(open, op_of_name(n), op); own != open.end()) {
        part(group, std::exchange(n, {}), *own);
        open.erase(own);
      }
    std::erase(gone, std::string_view());
    for (std::size_t i = 0; i < gone.size(); ++i) part(group, gone[i], open[i]);
  }

  /// Gives the reads of one value under a name that is gone a value of their own.
  void part(const FxGroup& reader, std::string_view name, const std::vector<CallRead>& reads) {
    const std::int32_t by = result_of_[at(reads[0].id)];
    const std::string_view op = op_of_name(name);
    GraphValueId again = -1;
    if (const auto it = again_.find(name); it != again_.end()) {
      again = it->second;
    } else if (by >= 0 && !(neutral_number(op) && users_.only_one_gone(by)) &&
               (op == op_of_name(program_.groups[at(by)].text.name) ||
                (op == "getitem" && gives_item(program_.groups[at(by)])))) {
      again = copy_call(reader, name, by, reads[0].node);
    } else if (op == "clone" && by >= 0 && asks_for_copy(old_.nodes[at(nodes_.maker[at(reads[0].id)])])) {
      again = add_same(reader, name, reads[0], "clone.default");
    } else if (op == "clone" && by >= 0 && reads_.lies_turned(by) && !takes_any_layout(reader.text.target) &&
               !is_dropped_out(old_.nodes[at(reader.nodes.back())], old_.nodes[at(nodes_.maker[at(reads[0].id)])],
                               program_.groups[at(by)].text.name, reader.text.target)) {
      again = add_same(reader, name, reads[0], "contiguous.default");
    } else if (op == "detach" && by >= 0 && copies_before_detach(old_.nodes[at(reader.nodes.back())])) {
      again = add_same(reader, name, reads[0], detached_copy, true);
    } else if (by < 0 && reads_.is_step(reads[0].id)) {
      again = add_step(reader, name, reads[0]);
    } else if (op == "cat" && by >= 0 && !may_be_joined(old_, reads[0].node, nodes_.maker[at(reads[0].id)])) {
      again = add_joined(reader, name, reads[0]);
    } else if (const std::string_view call = call_of_same(op, old_.nodes[reads[0].node], is_bound(old_, reader));
               !call.empty() && (by >= 0 || op == "detach" || reads_.is_input(reads[0].id))) {
      again = add_same(reader, name, reads[0], call);
    } else if (const auto number = neutral_number(op); number && (by >= 0 || reads_.is_input(reads[0].id))) {
      again = add_neutral(reader, name, reads[0], *number);
    }
    if (again < 0) return;
    again_.emplace(std::string(name), again);
    for (const CallRead& r : reads) g_.write().nodes[r.node].inputs[r.input] = again;
  }

  /// The call once more, and what was merged before it. -1 where nothing of it takes memory.
  GraphValueId copy_call(const FxGroup& reader, std::string_view name, std::int32_t by, std::size_t before) {
    const GraphNode& of_reader = old_.nodes[at(reader.nodes.back())];
    const GraphNode& maker = old_.nodes[at(program_.groups[at(by)].nodes.back())];
    const std::string_view here = module_of_node(of_reader), there = module_of_node(maker);
    if (const SecondCall second = second_call(maker, of_reader); !second.module.empty())
      return copy_second(reader, name, by, before, second);
    if (const GraphValueId id = made_by_second(by, here); id >= 0) {
      g_.write().values[at(id)].name = name;
      return id;
    }
    const std::string sibling =
        lost_.sibling(reads_.parameters_of({by}), there, note_at(of_reader.metadata, stack_trace_key));
    const Parting apart = sibling.empty() ? parting(there, here) : Parting{there, sibling};
    // From the module that both stand in: a part of it that is called again comes from the call before it.
    const bool other = !apart.root.empty();
    const std::string_view root = other ? apart.root : there;
    std::vector<std::int32_t> chain;
    const bool anew = other || (is_of_region(maker.metadata) && !is_of_region(of_reader.metadata));
    gather(by, root, other, anew, before, chain);
    if (!alike_.part_slice(by, reader) && reads_.do_nothing(chain)) return -1;
    if (other && sibling.empty() && lost_.has_own(reads_.parameters_of(chain), here, program_, reader)) return -1;
    const AlikeCalls::Made elsewhere = other ? AlikeCalls::Made() : alike_.made_elsewhere(reader, name, by);
    for (const auto& [mine, its] : elsewhere)
      if (std::ranges::find(chain, mine) == chain.end()) chain.push_back(mine);
    reads_.put_in_order(chain);
    return copy(chain, reader, name, by, before, apart, elsewhere);
  }

  /// The same where another line calls a module around both: all of it that leads to the call ran again.
  GraphValueId copy_second(const FxGroup& reader, std::string_view name, std::int32_t by, std::size_t before,
                           const SecondCall& second) {
    std::vector<std::int32_t> chain = reads_.within(by, second.module);
    if (!alike_.part_slice(by, reader) && reads_.do_nothing(chain)) return -1;
    reads_.put_in_order(chain);
    return copy(chain, reader, name, by, before, Parting{}, {}, &second);
  }

  /// What a second call has made where nobody outside of it, as `here`, has read it so far: a list of feature maps.
  GraphValueId made_by_second(std::int32_t call, std::string_view here) const {
    const auto made = second_.find(call);
    if (made != second_.end())
      for (const auto& [module, id] : made->second)
        if (!is_within(here, module) && is_fresh(g_.read().values[at(id)].name)) return id;
    return -1;
  }

  /// Calls of the module that come again with call `k`. `other`: for another module; `anew`: or another run of it.
  void gather(std::int32_t k, std::string_view root, bool other, bool anew, std::size_t before,
              std::vector<std::int32_t>& chain) {
    if (std::ranges::find(chain, k) != chain.end() || chain.size() > 4096) return;
    chain.push_back(k);
    for (const CallRead& r : reads_.of(program_.groups[at(k)])) {
      const std::int32_t from = result_of_[at(r.id)];
      if (from < 0) continue;
      const FxGroup& group = program_.groups[at(from)];
      if (!gives_one(group) || program_.is_list[at(group.name)]) continue;
      const std::string_view module = module_of_node(old_.nodes[at(group.nodes.back())]);
      const std::string_view op = op_of_name(group.text.name);
      bool again = counts_sizes(op) ? anew : left_out_.may_be(op, before, other);
      // Beside the module only what the file has for the other call alone: "D(torch.cat((x, y), 1))".
      if (root.empty() ? module != root : !is_within(module, root))
        again = other && is_within(root, module) && users_.none_left(from);
      if (again) gather(from, root, other, anew, before, chain);
    }
  }

  GraphValueId copy(const std::vector<std::int32_t>& chain, const FxGroup& reader, std::string_view name,
                    std::int32_t last, std::size_t before, const Parting& apart, const AlikeCalls::Made& elsewhere,
                    const SecondCall* second = nullptr) {
    std::unordered_map<std::string, std::string> names;
    std::unordered_map<GraphValueId, GraphValueId> values;
    const GraphNode& of_reader = old_.nodes[at(reader.nodes.back())];
    auto& made = second ? copies_[{second->lines, second->module}] : copies_[{module_of_node(of_reader), apart.root}];
    const bool alike = !apart.root.empty() && alike_.is_read_alike(last, reader);
    GraphValueId result = -1;
    for (std::int32_t k : chain) {
      const FxGroup& group = program_.groups[at(k)];
      const GraphValueId old = old_.nodes[at(group.nodes.back())].outputs[0];
      const std::string& value = old_.values[at(old)].name;  // that of a cast after it which an optimizer took out
      const std::string called = k == last && !gives_item(group) ? std::string(name) : fresh_name(group.text.name);
      const auto its = elsewhere.find(k);
      const std::pair place(module_of_node(of_reader), its == elsewhere.end() ? -1 : its->second);
      auto again = its == elsewhere.end() ? stood_.end() : stood_.find(place);
      if (k == last && again != stood_.end() && !is_fresh(g_.read().values[at(again->second)].name))
        again = stood_.end();
      if (const auto it = made.find(k);
          again != stood_.end() ||
          (it != made.end() && (second ? k != last || is_fresh(g_.read().values[at(it->second)].name)
                                       : k != last && !apart.root.empty()))) {
        const GraphValueId id = again != stood_.end() ? again->second : it->second;
        if (k == last) g_.write().values[at(result = id)].name = name;
        names.emplace(group.text.name, g_.read().values[at(id)].name);
        names.emplace(value, g_.read().values[at(id)].name);
        values.emplace(old, id);
        continue;
      }
      names.emplace(group.text.name, called);
      if (k == last) names.insert(alike_.made_like(group, reader));
      const std::string named = k == last ? std::string(name) : value == group.text.name ? called : fresh_name(value);
      names.emplace(value, named);
      read_gone(group, values, names);
      copied_ += group.nodes.size();
      if (copied_ > most_copies) return -1;
      for (std::int32_t n : group.nodes) {
        GraphNode node = copy_node(n, names, values, called, reader, apart, chain, second);
        if (its != elsewhere.end())
          stand_as(node, of_reader, old_.nodes[at(program_.groups[at(its->second)].nodes.back())]);
        else if (alike && alike_.in_one_module(k, last))
          stand_as(node, of_reader, old_.nodes[at(n)]);
        before_[before].push_back(std::move(node));
      }
      result = values.at(old);
      g_.write().values[at(result)].name = named;
      made[k] = result;
      if (second) second_[k].emplace_back(second->module, result);
      if (its != elsewhere.end()) stood_[place] = result;
    }
    return result;
  }

  /// What a call that comes again reads by names that are gone: what came again with it. D(fake) after D(fake.detach())
  /// reads the tensor itself, if that has a user which the file has lost.
  void read_gone(const FxGroup& group, const std::unordered_map<GraphValueId, GraphValueId>& values,
                 std::unordered_map<std::string, std::string>& names) {
    const std::vector<ValueId> named = tensors_of(group);
    const std::vector<CallRead> reads = reads_.of(group);
    for (std::size_t i = 0; i < named.size() && named.size() == reads.size(); ++i) {
      const std::string_view name = program_.names[at(named[i].index)];
      const auto copy = values.find(reads[i].id);
      const auto by = result_of_[at(reads[i].id)];
      const std::string_view made = by < 0 ? std::string_view() : program_.groups[at(by)].text.name;
      if (copy != values.end() && !known_[at(named[i].index)] && op_of_name(name) == op_of_name(made))
        names.emplace(name, g_.read().values[at(copy->second)].name);
      else if (by >= 0 && op_of_name(name) == "detach" && users_.take(by))
        names.emplace(name, made);
    }
  }

  /// A name of the same op with a number that no tracing reaches.
  std::string fresh_name(std::string_view name) {
    return fmt::format("{}_{}", op_of_name(name), first_fresh + static_cast<std::int64_t>(fresh_++));
  }

  GraphNode copy_node(std::int32_t n, const std::unordered_map<std::string, std::string>& names,
                      std::unordered_map<GraphValueId, GraphValueId>& values, const std::string& called,
                      const FxGroup& reader, const Parting& apart, const std::vector<std::int32_t>& chain,
                      const SecondCall* second) {
    GraphNode node = old_.nodes[at(n)];
    node.name += "_" + called;
    for (GraphValueId& id : node.inputs)
      if (const auto it = values.find(id); it != values.end()) id = it->second;
    for (GraphValueId& id : node.outputs)
      if (id >= 0) {
        GraphValue v = old_.values[at(id)];
        v.name += "_" + called;
        g_.write().values.push_back(std::move(v));
        const auto fresh = static_cast<GraphValueId>(g_.read().values.size() - 1);
        values[id] = fresh;
        id = fresh;
      }
    const auto twins = lost_.read_twins(node, apart, g_);
    if (auto it = node.metadata.find(fx_node_key); it != node.metadata.end())
      it->second = renamed(renamed(it->second, names), twins);
    const GraphNode& of_reader = old_.nodes[at(reader.nodes.back())];
    if (second) {
      lead_with(node, of_reader, second->frames);
      return node;
    }
    if (frames_.move_to_reader(node, of_reader, at(n), chain)) return node;
    if (apart.root.empty() && module_of_node(node) != module_of_node(of_reader))
      move_lines(node, of_reader);  // of a part of the module, which is called again
    else if (apart.root.empty())
      take_lines(node, of_reader);  // it is made where it is read
    if (apart.index || !twins.empty()) {
      if (auto it = node.metadata.find(scopes_key); it != node.metadata.end())
        it->second = with_module(it->second, apart);
      move_lines(node, of_reader);
    } else if (!apart.root.empty()) {
      move_to_twin(node, of_reader);
    }
    return node;
  }

  GraphValueId new_value(std::string name, std::optional<DType> dtype, std::optional<std::vector<Dim>> shape) {
    g_.write().values.push_back({std::move(name), dtype, std::move(shape), {}});
    return static_cast<GraphValueId>(g_.read().values.size() - 1);
  }

  /// The node of a call that changes nothing but where its result lies: behind what made `read`, or in a line to come.
  GraphValueId add_node(const FxGroup& reader, std::string_view name, const CallRead& read, GraphNode node,
                        std::string_view call, bool in_line = false) {
    const GraphValue x = value_with_sizes(g_.read(), read.id);
    const GraphValueId made = new_value(std::string(name), x.dtype, x.shape);
    const std::int32_t maker = in_line ? -1 : nodes_.maker[at(read.id)], by = result_of_[at(read.id)];
    node.name = fmt::format("node_{}", name);
    node.outputs = {made};
    const GraphNode& after = old_.nodes[at(reader.nodes.back())];
    const bool called = maker >= 0 && is_of_caller(old_.nodes[at(maker)], after, op_of_name(name));
    node.metadata = (maker >= 0 && !called ? old_.nodes[at(maker)] : after).metadata;
    if (called) node.metadata.erase(std::string(stack_trace_key));
    if (call == detached_copy) stand_in_line(node, after, copying_detach);
    const auto stored = std::ranges::find(signature_.inputs, x.name, &SignatureLine::target);
    const std::string_view own = stored == signature_.inputs.end() ? std::string_view(x.name) : stored->name,
                           from = by >= 0 ? program_.groups[at(by)].text.name : own;
    node.metadata[fx_node_key] =
        fmt::format("%{} : [num_users=1] = call_function[target=torch.ops.aten.{}](args = ({}{}), kwargs = {{}})", name,
                    call.substr(0, call.find(' ')),
                    call.starts_with("cat.") ? fmt::format("[%{}]", from) : fmt::format("%{}", from),
                    call.find(' ') == call.npos ? std::string_view(",") : call.substr(call.find(' ')));
    const bool told = op_of_name(name) == "cat" && alike_.stand_like_sibling(node, reader, "cat");
    auto& there = before_[maker >= 0 && !told ? at(maker) + 1 : read.node];
    there.insert(there.begin(), std::move(node));
    return made;
  }

  /// That node as a call of its own, where it is such an op.
  GraphValueId add_step(const FxGroup& reader, std::string_view name, const CallRead& read) {
    const GraphNode& step = old_.nodes[at(nodes_.maker[at(read.id)])];
    if (lower_case(step.op_type) != op_of_name(name)) return -1;
    GraphNode node = node_of(step.op_type, step.inputs);
    return add_node(reader, name, {read.node, read.input, step.inputs[0]}, std::move(node),
                    fmt::format("{}.default", op_of_name(name)), true);
  }

  /// `x.contiguous()` of a view, `x.detach()`.
  GraphValueId add_same(const FxGroup& reader, std::string_view name, const CallRead& read, std::string_view call,
                        bool in_line = false) {
    GraphNode node = node_of("Identity", {read.id});
    if (const std::int32_t by = result_of_[at(read.id)]; by >= 0) users_.take(by);
    return add_node(reader, name, read, std::move(node), call, in_line);
  }

  /// `torch.cat([rotated, rest], dim=-1)` where nothing is left of the rest: a copy.
  GraphValueId add_joined(const FxGroup& reader, std::string_view name, const CallRead& read) {
    GraphNode node = node_of("Concat", {read.id});
    node.attributes["axis"] = std::int64_t{-1};
    return add_node(reader, name, read, std::move(node), "cat.default , -1");
  }

  /// x * 1.0 and its like, `cos = emb.cos() * self.scaling`; in the reader's line where that alone has such a sign.
  GraphValueId add_neutral(const FxGroup& reader, std::string_view name, const CallRead& read, double number) {
    const DType dtype = g_.read().values[at(read.id)].dtype.value_or(DType::float32);
    if (!is_floating(dtype)) return -1;
    StoredTensor t{fmt::format("{}_number", name), dtype, {}, {}, {number}, false, {}};
    const GraphValueId id = new_value(t.name, dtype, std::vector<Dim>{});
    g_.write().initializers.emplace(id, std::move(t));
    const std::string_view op = op_of_name(name);
    GraphNode node = node_of(op == "mul" ? "Mul" : op == "div" ? "Div" : op == "add" ? "Add" : "Sub", {read.id, id});
    const std::int32_t maker = nodes_.maker[at(read.id)];
    const bool in_line = has_free_sign(old_.nodes[at(reader.nodes.back())], op) &&
                         !(maker >= 0 && has_free_sign(old_.nodes[at(maker)], op));
    return add_node(reader, name, read, std::move(node), fmt::format("{}.Tensor , {:.1f}", op, number), in_line);
  }

  const Graph& old_;
  ChangedGraph g_;
  const FxProgram& program_;
  const GroupedNodes nodes_;
  const std::vector<std::int32_t>& result_of_;  ///< by value: the call whose result it is, else -1
  const CallReads reads_;
  const Signature signature_;
  const std::vector<bool> known_;  ///< by name: something in the file has it
  LostTwins lost_;
  AlikeCalls alike_;
  OpenUsers users_;
  const LeftOut left_out_;
  ReaderFrames frames_;
  std::map<std::string, GraphValueId, std::less<>> again_;  ///< names that are gone -> their value
  /// Calls that came again for a reader's module, by the module that they were merged into.
  std::map<std::pair<std::string_view, std::string_view>, std::map<std::int32_t, GraphValueId>> copies_;
  /// By call: the modules that were called again with it, and what it made there.
  std::map<std::int32_t, std::vector<std::pair<std::string_view, GraphValueId>>> second_;
  /// By module, and the call of another that is made in the place of.
  std::map<std::pair<std::string_view, std::int32_t>, GraphValueId> stood_;
  NodesBefore before_;  ///< nodes to put before node i
  std::size_t copied_ = 0, fresh_ = 0;
};

}  // namespace

std::optional<Graph> undo_merging(const Graph& graph, const FxProgram& program) { return Parter(graph, program).run(); }

}  // namespace memplan::onnx_format
