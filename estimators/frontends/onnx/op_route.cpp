#include "estimators/frontends/onnx/op_route.h"

#include <fmt/format.h>

#include <algorithm>

#include "estimators/frontends/onnx/emit.h"
#include "estimators/frontends/onnx/name_scopes.h"
#include "estimators/frontends/onnx/patterns.h"
#include "estimators/frontends/onnx/roles.h"
#include "estimators/frontends/onnx/table.h"

namespace memplan::onnx_format {

namespace {

/// The inputs that a node reads as tensors, the rest being sizes and numbers.
std::vector<GraphValueId> tensor_inputs(const GraphNode& n, const Facts& facts) {
  const OpRow* row = find_op(n);
  std::vector<GraphValueId> out;
  for (std::size_t i = 0; i < n.inputs.size(); ++i) {
    const GraphValueId id = n.inputs[i];
    if (id < 0) continue;
    const std::uint32_t bit = i < 32 ? 1u << i : 0;
    const Fact& f = facts[id];
    if (row && (row->sizes_only & bit) && f.sizes) continue;
    if (row && (row->numbers & bit) && f.contents) continue;
    if (row && (row->operands & bit) && is_python_number(facts, id)) continue;
    out.push_back(id);
  }
  return out;
}

class OpRoute {
 public:
  OpRoute(const Graph& graph, std::int64_t opset, const TrainingSetup& setup, Values& values, Tape& tape)
      : graph_(graph), facts_(graph, values.symbols(), opset), values_(values), tape_(tape), emit_(facts_, setup, values, tape), scopes_(tape) {
    reads_.reserve(graph.nodes.size());
    for (const GraphNode& n : graph.nodes) reads_.push_back(tensor_inputs(n, facts_));
  }

  void run() {
    const View view = look();
    find_patterns(view);
    mark_needed();
    std::vector<std::vector<GraphValueId>> reads(graph_.nodes.size());
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
      if (needed_[i]) reads[i] = found_[i] ? found_[i]->reads : reads_[i];
    store_initializers(facts_, reads, values_, tape_);
    tape_.calls.reserve(graph_.nodes.size());
    tape_.values.reserve(tape_.values.size() + graph_.nodes.size() + 16);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!needed_[i]) continue;
      const GraphNode& n = graph_.nodes[i];
      emit_.scope = scopes_.enter(n.name);
      if (found_[i]) {
        found_[i]->emit(emit_);
        if (!found_[i]->op.empty()) emit_.recovered(found_[i]->op, found_[i]->from);
      } else {
        emit_.lower_node(n);
      }
    }
    for (GraphValueId id : graph_.outputs) tape_.outputs.push_back(emit_.tensor(id));
    for (const auto& [key, count] : emit_.counts) tape_.recovered.push_back({key.first, key.second, count});
    notes();
  }

 private:
  /// Who makes and who reads each value, without the nodes that only compute sizes.
  View look() {
    std::vector<std::int32_t> producer(graph_.values.size(), -1), readers(graph_.values.size(), 0);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
      for (GraphValueId id : graph_.nodes[i].outputs)
        if (id >= 0) producer[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(i);
    found_.resize(graph_.nodes.size());
    covered_.assign(graph_.nodes.size(), false);
    mark_needed();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
      if (needed_[i])
        for (GraphValueId id : reads_[i]) ++readers[static_cast<std::size_t>(id)];
    for (GraphValueId id : graph_.outputs) ++readers[static_cast<std::size_t>(id)];
    return View(facts_, std::move(producer), std::move(readers));
  }

  void find_patterns(const View& view) {
    // From the end, so that a larger pattern takes its nodes before a smaller one ends inside of it.
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
      if (!needed_[i] || covered_[i]) continue;
      auto found = match(view, static_cast<std::int32_t>(i));
      if (!found) continue;
      const bool taken = std::any_of(found->nodes.begin(), found->nodes.end(), [&](std::int32_t n) { return covered_[static_cast<std::size_t>(n)]; });
      if (taken) continue;
      for (std::int32_t n : found->nodes) covered_[static_cast<std::size_t>(n)] = true;
      found_[i] = std::move(found);
    }
  }

  /// Backwards from the outputs: nodes that make a tensor which something reads as a tensor.
  void mark_needed() {
    std::vector<bool> wanted(graph_.values.size(), false);
    for (GraphValueId id : graph_.outputs) wanted[static_cast<std::size_t>(id)] = true;
    needed_.assign(graph_.nodes.size(), false);
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
      const auto& outputs = graph_.nodes[i].outputs;
      if (std::none_of(outputs.begin(), outputs.end(), [&](GraphValueId id) { return id >= 0 && wanted[static_cast<std::size_t>(id)]; })) continue;
      needed_[i] = true;
      for (GraphValueId id : found_[i] ? found_[i]->reads : reads_[i]) wanted[static_cast<std::size_t>(id)] = true;
    }
  }

  void notes() {
    std::int64_t evaluation = 0, batch_norms = 0, dropouts = 0, folded = 0;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& n = graph_.nodes[i];
      if (n.op_type == "Dropout") ++dropouts;
      if (n.op_type != "BatchNormalization") continue;
      ++batch_norms;
      if (At{n, facts_, facts_.opset()}.integer("training_mode", 0) == 0) ++evaluation;
    }
    for (const auto& [key, count] : emit_.counts)
      if (key.first == "aten::batch_norm") folded += count;
    if (!emit_.training()) return;
    if (evaluation > 0 && batch_norms == evaluation)
      tape_.notes.push_back({"MP008", fmt::format("the file's {} BatchNormalization nodes are in their inference form; they are taken to train, as model.train() makes them", evaluation)});
    if (folded > 0)
      tape_.notes.push_back({"MP008", fmt::format("{} batch norms that the export folded into convolutions are counted again", folded)});
    if ((evaluation > 0 || folded > 0) && dropouts == 0)
      tape_.notes.push_back({"MP008", "the model was exported in evaluation mode, which removes dropout; if it has any, training needs more than this"});
  }

  const Graph& graph_;
  Facts facts_;
  Values& values_;
  Tape& tape_;
  Emit emit_;
  NameScopes scopes_;
  std::vector<std::vector<GraphValueId>> reads_;   ///< by node
  std::vector<std::optional<Found>> found_;        ///< by the last node of a pattern
  std::vector<bool> covered_, needed_;             ///< by node
};

}  // namespace

void lower_ops(const Graph& graph, std::int64_t opset, const TrainingSetup& setup, Values& values, Tape& tape) {
  OpRoute(graph, opset, setup, values, tape).run();
}

}  // namespace memplan::onnx_format
