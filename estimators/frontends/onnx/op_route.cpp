#include "estimators/frontends/onnx/op_route.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "estimators/frontends/onnx/emit.h"
#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/fx_groups.h"
#include "estimators/frontends/onnx/fx_route.h"
#include "estimators/frontends/onnx/made_of_lines.h"
#include "estimators/frontends/onnx/name_scopes.h"
#include "estimators/frontends/onnx/patterns.h"
#include "estimators/frontends/onnx/regions.h"
#include "estimators/frontends/onnx/roles.h"
#include "estimators/frontends/onnx/scopes.h"
#include "estimators/frontends/onnx/table.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

namespace {

/// The inputs that a node reads as tensors, the rest being sizes and numbers.
std::vector<GraphValueId> tensor_inputs(const GraphNode& n, const InferredValues& inferred) {
  const OpRow* row = find_op(n);
  std::vector<GraphValueId> out;
  for (std::size_t i = 0; i < n.inputs.size(); ++i) {
    const GraphValueId id = n.inputs[i];
    if (id < 0) continue;
    const std::uint32_t bit = i < 32 ? 1u << i : 0;
    const Inferred& f = inferred[id];
    if (row && (row->sizes_only & bit) && f.sizes) continue;
    if (row && (row->numbers & bit) && f.contents) continue;
    if (row && (row->operands & bit) && is_python_number(inferred, id)) continue;
    out.push_back(id);
  }
  return out;
}

class OpRoute {
 public:
  OpRoute(const Graph& graph, const TrainingSetup& setup, Values& values, Tape& tape)
      : graph_(graph),
        inferred_(values.inferred()),
        values_(values),
        tape_(tape),
        emit_(inferred_, setup, values, tape),
        scopes_(tape),
        names_(tape) {
    reads_.reserve(graph.nodes.size());
    for (const GraphNode& n : graph.nodes) reads_.push_back(tensor_inputs(n, inferred_));
  }

  void run() {
    found_.resize(graph_.nodes.size());
    covered_.assign(graph_.nodes.size(), false);
    mark_needed();  // without the nodes that only compute sizes
    const View view(inferred_, needed_, reads_);
    if (has_fx_text(graph_)) take(match_fx_groups(view, graph_));
    find_patterns(view);
    SameTypeCasts casts = same_type_casts(inferred_, needed_, reads_);
    emit_.same_type_casts = std::move(casts.of);
    mark_needed();
    store_initializers(inferred_, reads_by_role(), values_, tape_);
    part_merged();
    tape_.values.reserve(tape_.values.size() + graph_.nodes.size() + 16);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
      if (needed_[i]) lower(i, casts);
    if (emit_.training()) settle_regions(tape_, regions_, scopes_.without_gradients());
    for (GraphValueId id : graph_.outputs) tape_.outputs.push_back(emit_.tensor(id));
    for (const auto& [key, count] : emit_.counts)
      tape_.recovered.push_back({key.first, key.second, count, Evidence::told_by_pattern, About::op});
    notes();
  }

 private:
  /// By node: the tensors that it reads. Of a pattern each counts for the node in it that reads it, which tells its
  /// role.
  std::vector<std::vector<GraphValueId>> reads_by_role() const {
    std::vector<std::vector<GraphValueId>> reads(graph_.nodes.size());
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!needed_[i]) continue;
      if (!found_[i]) {
        reads[i] = reads_[i];
        continue;
      }
      for (GraphValueId id : found_[i]->reads) {
        const auto& nodes = found_[i]->nodes;
        const auto reader = std::find_if(nodes.begin(), nodes.end(), [&](std::int32_t n) {
          const auto& all = graph_.nodes[static_cast<std::size_t>(n)].inputs;
          return std::find(all.begin(), all.end(), id) != all.end();
        });
        reads[reader == nodes.end() ? i : static_cast<std::size_t>(*reader)].push_back(id);
      }
    }
    return reads;
  }

  /// The calls of one node, or of the pattern that ends with it, in the scope that the file says.
  void lower(std::size_t i, const SameTypeCasts& casts) {
    const GraphNode& n = graph_.nodes[i];
    std::string source;
    const bool told = n.metadata.count("pkg.torch.onnx.name_scopes") > 0;
    emit_.scope = told || by_metadata_ ? scopes_.enter(n, source) : names_.enter(n.name);
    by_metadata_ = by_metadata_ || told;
    const std::size_t first = tape_.calls.size();
    // Values that this node alone reads in another form.
    std::vector<std::pair<GraphValueId, ValueId>> swapped;
    auto swap = [&](GraphValueId id, ValueId instead) {
      swapped.emplace_back(id, emit_.tensor(id));
      emit_.bind(id, instead);
    };
    make_folded(found_[i] ? found_[i]->reads : reads_[i], n);
    const auto index = static_cast<std::int32_t>(i);
    if (auto it = casts.before_cast.find(index); it != casts.before_cast.end())
      swap(it->second.first, emit_.tensor(it->second.second));
    if (auto it = casts.narrowed.find(index); it != casts.narrowed.end() && !found_[i])
      swap(it->second, emit_.call("memplan::to_default_dtype", {{emit_.tensor(it->second)}}));
    if (found_[i]) {
      found_[i]->emit(emit_);
      if (!found_[i]->op.empty()) emit_.recovered(found_[i]->op, found_[i]->from);
    } else {
      emit_.lower_node(n);
    }
    for (const auto& [id, value] : swapped) emit_.bind(id, value);
    for (std::size_t c = first; c < tape_.calls.size(); ++c) {
      if (tape_.calls[c].binding < 0) tape_.calls[c].source = source;
      tape_.calls[c].function = told ? scopes_.function() : -1;
      if (told) tie(tape_.calls[c]);
    }
    if (told) write_in_place(tape_, first, scopes_.written());
    regions_.resize(tape_.calls.size(), scopes_.region());
  }

  void take(std::vector<std::optional<Found>> all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i] || !needed_[i]) continue;
      for (std::int32_t n : all[i]->nodes) covered_[static_cast<std::size_t>(n)] = true;
      found_[i] = std::move(all[i]);
    }
  }

  /// A large parameter that a module reads under another module's name is tied.
  void tie(const Call& call) {
    if (call.scope < 0) return;
    for_each_value(call, [&](ValueId id) {
      if (id.valid() && !may_be_merged(tape_.values[static_cast<std::size_t>(id.index)].sizes))
        values_.use_in_scope(id, tape_.scopes[static_cast<std::size_t>(call.scope)].path);
    });
  }

  void find_patterns(const View& view) {
    // From the end, so that a larger pattern takes its nodes before a smaller one ends inside of it.
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
      if (!needed_[i] || covered_[i]) continue;
      auto found = match(view, static_cast<std::int32_t>(i));
      if (!found) continue;
      const bool taken = std::any_of(found->nodes.begin(), found->nodes.end(),
                                     [&](std::int32_t n) { return covered_[static_cast<std::size_t>(n)]; });
      if (taken) continue;
      for (std::int32_t n : found->nodes) covered_[static_cast<std::size_t>(n)] = true;
      found_[i] = std::move(found);
    }
  }

  /// An export in evaluation mode merges equal tensors and keeps the name of each on an Identity. Biases and norms of a
  /// fresh model are equal without being one; a large matrix is only equal to another when the two are tied.
  void part_merged() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& n = graph_.nodes[i];
      if (!needed_[i] || n.op_type != "Identity" || n.inputs.size() != 1 || n.outputs.size() != 1 || n.outputs[0] < 0)
        continue;
      const auto stored = graph_.initializers.find(n.inputs[0]);
      if (stored == graph_.initializers.end() || stored->second.sizes.size() != 1 || !is_floating(stored->second.dtype))
        continue;
      StoredTensor own = stored->second;
      own.name = graph_.values[static_cast<std::size_t>(n.outputs[0])].name;
      if (own.name.find('.') == std::string::npos || own.name.find("::") != std::string::npos ||
          own.name.front() == '/')
        continue;
      values_.set(n.outputs[0], values_.make(guess_kind(own), own.name, own.dtype, own.sizes));
      needed_[i] = false;
    }
  }

  /// What was worked out ahead of the run is made by the program where it is read first: by `reader`, or by nodes that
  /// become one with it.
  void make_folded(const std::vector<GraphValueId>& reads, const GraphNode& reader) {
    for (const GraphValueId id : reads) {
      if (id < 0 || values_.has(id)) continue;
      const Inferred& f = inferred_[id];
      if (!f.dtype || !f.sizes) continue;
      if (values_.is_folded_result(id)) {
        if (bind_view(id, values_.viewed_buffer(id))) continue;
        if (is_of_frequencies(id)) hold_positions((*f.sizes)[1]);
        if (bind_view_of_made(id)) continue;
        const std::int32_t module = emit_.scope;
        const std::string name = named_index();
        if (!name.empty()) emit_.scope = tape_.scopes[static_cast<std::size_t>(module)].parent;
        emit_.bind(id, emit_.call("aten::empty.memory_format", {list_of(*f.sizes)}, {{"dtype", {*f.dtype}}},
                                  emit_.name_of(id)));
        if (!name.empty()) tape_.calls.back().binding = tape_.add_binding({name});
        emit_.scope = module;
      } else if (const std::string_view name = values_.folded_parameter(id); !name.empty()) {
        const std::string op = folded_op(emit_.name_of(id));
        ValueId made = values_.make_missing(name, *f.dtype, sizes_before(op, *f.sizes));
        if (const auto first = step_before(emit_.name_of(id), folded_from(graph_, id)))
          made = emit_.call(first->op, folded_arguments(first->op, {made}, sizes_before(op, *f.sizes)), {},
                            std::string(first->name));
        emit_.bind(id, emit_.call(op, folded_arguments(op, {made}, *f.sizes), {}, emit_.name_of(id)));
      } else if (const auto lines = values_.folded_lines(id); !lines.empty()) {
        const std::string_view text = note_at(reader.metadata, fx_node_key);
        const std::string name_there = "%" + emit_.name_of(id);
        const bool named = text.find(name_there + ",") != text.npos || text.find(name_there + ")") != text.npos;
        const MadeOfLines made = make_of_lines(emit_, id, lines, named);
        emit_.bind(id, made.value);
        tables_ += made.looked_up * copies_in_training;
        looked_up_ += made.looked_up > Bytes() ? 1 : 0;
      }
    }
  }

  /// "pos" of "self.wpe(pos)", an embedding: its caller's frame has made what the name holds. Empty elsewhere.
  std::string named_index() const {
    if (emit_.scope < 0) return {};
    const Scope& s = tape_.scopes[static_cast<std::size_t>(emit_.scope)];
    if (!s.module_class.ends_with("sparse.Embedding") || s.parent < 0) return {};
    const std::string call = "." + s.path.substr(s.path.rfind('.') + 1) + "(";
    const auto at = s.source.find(call), first = at == std::string::npos ? at : at + call.size();
    const std::string name = at == std::string::npos ? "" : s.source.substr(first, s.source.find(')', first) - first);
    return std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '_'; }) ? name : "";
  }

  /// What is a part of a buffer, or the buffer of other dimensions. False where there is none, or the part is no view.
  bool bind_view(GraphValueId id, ValueId buffer) {
    if (!buffer.valid()) return false;
    const Sizes& sizes = *inferred_[id].sizes;
    const Sizes whole = tape_.values[static_cast<std::size_t>(buffer.index)].sizes;
    if (whole.size() != sizes.size()) {
      if (count_of(whole) != count_of(sizes)) return false;
      emit_.bind(id, emit_.call("aten::view", {{buffer}, list_of(sizes)}, {}, emit_.name_of(id)));
      return true;
    }
    ValueId part = buffer;
    for (std::size_t d = 0; d < sizes.size(); ++d)
      if (sizes[d] < whole[d])
        part =
            emit_.call("memplan::index_slice", {{part}, {static_cast<std::int64_t>(d)}, {std::int64_t{0}}, {sizes[d]}},
                       {}, emit_.name_of(id));
    bool larger = false;
    for (std::size_t d = 0; d < sizes.size(); ++d) larger = larger || sizes[d] > whole[d];
    if (larger) part = emit_.call("aten::expand", {{part}, list_of(sizes)}, {}, emit_.name_of(id));
    const bool compared = inferred_[id].dtype != tape_.values[static_cast<std::size_t>(buffer.index)].dtype;
    emit_.bind(id, compared ? emit_.call("aten::eq.Scalar", {{part}, {std::int64_t{0}}}) : part);
    return true;
  }

  /// `cos.unsqueeze(1)` of every layer was worked out for each, where cos is small. They are views of what the same
  /// calls made. False where the result is no view.
  bool bind_view_of_made(GraphValueId id) {
    const auto is_view = [](std::string_view name) {
      const char* op = folded_op(name);
      return op && op == std::string_view("aten::view");
    };
    if (!is_view(emit_.name_of(id))) return false;
    std::string calls;
    for (const std::string_view name : folded_from(graph_, id))
      if (!name.starts_with("val_") && !is_view(name)) calls.append(name).push_back(' ');
    if (calls.empty()) return false;
    const Inferred& f = inferred_[id];
    ValueId& made = made_by_calls_[{calls, count_of(*f.sizes)}];
    if (!made.valid()) {
      if (f.sizes->size() > 2) hold_positions_of_angles(id, (*f.sizes)[f.sizes->size() - 2]);
      made = emit_.call("aten::empty.memory_format", {list_of(*f.sizes)}, {{"dtype", {*f.dtype}}}, emit_.name_of(id));
    }
    emit_.bind(id, emit_.call("aten::view", {{made}, list_of(*f.sizes)}, {}, emit_.name_of(id)));
    return true;
  }

  /// The angles of transformers' rotary embeddings, [1, positions, features].
  bool is_of_frequencies(GraphValueId id) const {
    const auto from = folded_from(graph_, id);
    return inferred_[id].sizes->size() == 3 &&
           std::ranges::any_of(from, [](std::string_view name) { return name.ends_with("inv_freq"); });
  }

  /// Where they went into the result: that model's are held.
  void hold_positions_of_angles(GraphValueId id, std::int64_t length) {
    constexpr std::string_view angles = ".rotary_emb.inv_freq";
    for (const std::string_view name : folded_from(graph_, id)) {
      if (!name.ends_with(angles)) continue;
      std::int32_t model = emit_.scope;
      while (model >= 0 &&
             tape_.scopes[static_cast<std::size_t>(model)].path != name.substr(0, name.size() - angles.size()))
        model = tape_.scopes[static_cast<std::size_t>(model)].parent;
      hold_positions(length, model);
    }
  }

  /// The model that calls them makes position_ids before, and its frame holds them.
  void hold_positions(std::int64_t length) {
    if (emit_.scope >= 0) hold_positions(length, tape_.scopes[static_cast<std::size_t>(emit_.scope)].parent);
  }

  void hold_positions(std::int64_t length, std::int32_t model) {
    const std::int32_t rotary = emit_.scope;
    if (model < 0 || !positions_of_.insert(model).second) return;
    emit_.scope = model;
    emit_.call("aten::empty.memory_format", {list_of({1, length})}, {{"dtype", {DType::int64}}}, "position_ids");
    tape_.calls.back().binding = tape_.add_binding({"position_ids"});
    emit_.scope = rotary;
  }

  /// Backwards from the outputs: nodes that make a tensor which something reads as a tensor.
  void mark_needed() {
    std::vector<bool> wanted(graph_.values.size(), false);
    for (GraphValueId id : graph_.outputs) wanted[static_cast<std::size_t>(id)] = true;
    needed_.assign(graph_.nodes.size(), false);
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
      const auto& outputs = graph_.nodes[i].outputs;
      if (std::none_of(outputs.begin(), outputs.end(),
                       [&](GraphValueId id) { return id >= 0 && wanted[static_cast<std::size_t>(id)]; }))
        continue;
      needed_[i] = true;
      if (found_[i])
        for (GraphValueId id : found_[i]->makes) wanted[static_cast<std::size_t>(id)] = false;
      for (GraphValueId id : found_[i] ? found_[i]->reads : reads_[i]) wanted[static_cast<std::size_t>(id)] = true;
    }
  }

  void notes() {
    if (looked_up_ > 0)
      tape_.notes.push_back({"MP004",
                             fmt::format("{} tables of relative positions are not in the file, because the export "
                                         "looked them up ahead of the run; their rows are those of all distances",
                                         looked_up_),
                             Evidence::told_by_pattern,
                             About::weights,
                             {},
                             {},
                             -1,
                             1,
                             Effect{tables_, tables_}});
    std::int64_t evaluation = 0, batch_norms = 0, dropouts = 0, folded = 0;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& n = graph_.nodes[i];
      if (n.op_type == "Dropout") ++dropouts;
      if (n.op_type != "BatchNormalization") continue;
      ++batch_norms;
      if (At{n, inferred_, inferred_.opset()}.integer("training_mode", 0) == 0) ++evaluation;
    }
    for (const auto& [key, count] : emit_.counts)
      if (key.first == "aten::batch_norm") folded += count;
    if (!emit_.training()) return;
    if (evaluation > 0 && batch_norms == evaluation)
      tape_.notes.push_back({"MP008",
                             fmt::format("the file's {} BatchNormalization nodes are in their inference form; "
                                         "they are taken to train, as model.train() makes them",
                                         evaluation),
                             Evidence::assumed, About::mode});
    if (folded > 0)
      tape_.notes.push_back(
          {"MP008", fmt::format("{} batch norms that the export folded into convolutions are counted again", folded),
           Evidence::told_by_name, About::mode});
    if ((evaluation > 0 || folded > 0) && dropouts == 0)
      tape_.notes.push_back({"MP008",
                             "the model was exported in evaluation mode, which removes dropout; if it has any, "
                             "training needs more than this",
                             Evidence::assumed, About::mode});
  }

  const Graph& graph_;
  const InferredValues& inferred_;
  Values& values_;
  Tape& tape_;
  Emit emit_;
  ScopeTracker scopes_;                           ///< by the exporter's metadata
  NameScopes names_;                              ///< by the names of nodes
  std::vector<std::vector<GraphValueId>> reads_;  ///< by node
  std::vector<std::optional<Found>> found_;       ///< by the last node of a pattern
  std::vector<bool> covered_, needed_;            ///< by node
  bool by_metadata_ = false;
  std::map<std::pair<std::string, std::int64_t>, ValueId> made_by_calls_;  ///< by names of calls, and elements
  std::set<std::int32_t> positions_of_;                                    ///< scopes whose position_ids are made
  std::vector<std::int32_t> regions_;                                      ///< by call: of ScopeTracker
  Bytes tables_;  ///< what tables of relative positions may take
  std::int64_t looked_up_ = 0;
};

}  // namespace

void lower_ops(const Graph& graph, const TrainingSetup& setup, Values& values, Tape& tape) {
  OpRoute(graph, setup, values, tape).run();
}

}  // namespace memplan::onnx_format
