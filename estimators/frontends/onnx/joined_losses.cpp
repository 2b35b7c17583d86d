#include "estimators/frontends/onnx/joined_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "estimators/frontends/onnx/changed_graph.h"
#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/lost_calls.h"
#include "estimators/frontends/onnx/metadata.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

namespace {

/// (target - 1) * maximum(log1p(-input), -100) - target * maximum(log(input), -100), and its reduction.
struct Loss {
  std::vector<std::int32_t> nodes;  ///< all of it, in falling order
  std::int32_t last = -1;           ///< the node whose output is the result
  std::int32_t log = -1;            ///< log(input)
  GraphValueId input = -1, target = -1;
  std::string_view input_name, target_name;
  int reduction = 0;  ///< as at::Reduction: none, mean, sum
};

/// Calls of a loss that name its input: neg, log, and two new_full.
constexpr std::int64_t uses_of_input = 4;

constexpr std::size_t most_names = 64;  ///< of a call that is looked at

/// Calls beside the losses that read the input of one: how many call it by its own name, and another name for it.
struct Other {
  std::int64_t users = 0;
  std::string_view name;
  const FxGroup* last = nullptr;  ///< the call that was counted last
};

class LossJoiner {
 public:
  LossJoiner(const Graph& g, const FxProgram& program)
      : old_(g), g_(g), program_(program), nodes_(g, program), readers_(g.values.size()) {
    for (std::size_t n = 0; n < g.nodes.size(); ++n)
      for (GraphValueId id : g.nodes[n].inputs)
        if (id >= 0) readers_[at(id)].push_back(static_cast<std::int32_t>(n));
  }

  std::optional<Graph> run() {
    for (std::size_t n = 0; n < old_.nodes.size(); ++n)
      if (old_.nodes[n].op_type == "Sub")
        if (std::optional<Loss> loss = loss_at(static_cast<std::int32_t>(n))) losses_.push_back(std::move(*loss));
    if (losses_.empty()) return std::nullopt;
    look_at_readers();
    for (const Loss& loss : losses_) join(loss);
    drop_unread();
    return g_.take();
  }

 private:
  /// The node that makes the value, where it is of this type.
  std::int32_t made_by(GraphValueId id, std::string_view op) const {
    const std::int32_t n = id < 0 ? -1 : nodes_.maker[at(id)];
    return n >= 0 && old_.nodes[at(n)].op_type == op ? n : -1;
  }
  GraphValueId input(std::int32_t n, std::size_t i) const {
    return n >= 0 && i < old_.nodes[at(n)].inputs.size() ? old_.nodes[at(n)].inputs[i] : -1;
  }
  /// What the node's call names first.
  std::string_view first_name(std::int32_t n) const {
    const std::int32_t group = n < 0 ? -1 : nodes_.group[at(n)];
    if (group < 0 || program_.groups[at(group)].text.args.empty()) return {};
    const auto* id = std::get_if<ValueId>(&program_.groups[at(group)].text.args[0].value);
    return id ? program_.names[at(id->index)] : std::string_view{};
  }

  std::optional<Loss> loss_at(std::int32_t sub) const {
    const std::int32_t left = made_by(input(sub, 0), "Mul"), right = made_by(input(sub, 1), "Mul");
    const std::int32_t shifted = made_by(input(left, 0), "Sub"), low = made_by(input(left, 1), "Max"),
                       high = made_by(input(right, 1), "Max");
    const std::int32_t log1p = made_by(input(low, 0), "Log"), log = made_by(input(high, 0), "Log");
    const std::int32_t add = made_by(input(log1p, 0), "Add"), neg = made_by(input(add, 0), "Neg");
    if (neg < 0 || log < 0 || shifted < 0 || input(neg, 0) < 0 || input(neg, 0) != input(log, 0) ||
        input(shifted, 0) != input(right, 0))
      return std::nullopt;
    Loss loss{{sub, right, high, log, left, low, log1p, add, neg, shifted},
              sub,
              log,
              input(log, 0),
              input(right, 0),
              first_name(log),
              first_name(shifted),
              0};
    if (loss.input_name.empty() || loss.target_name.empty()) return std::nullopt;
    reduce(loss);
    std::ranges::sort(loss.nodes, std::greater());
    return loss;
  }

  /// `reduction="mean"` and "sum".
  void reduce(Loss& loss) const {
    const auto& readers = readers_[at(old_.nodes[at(loss.last)].outputs[0])];
    const std::int32_t group = readers.size() == 1 ? nodes_.group[at(readers[0])] : -1;
    if (group < 0) return;
    const std::string_view target = program_.groups[at(group)].text.target;
    loss.reduction = target == "torch.ops.aten.mean.default" ? 1 : target == "torch.ops.aten.sum.default" ? 2 : 0;
    if (loss.reduction == 0) return;
    const auto& nodes = program_.groups[at(group)].nodes;
    loss.nodes.insert(loss.nodes.end(), nodes.begin(), nodes.end());
    loss.last = nodes.back();
  }

  void join(const Loss& loss) {
    const std::int32_t group = nodes_.group[at(loss.last)];
    GraphNode& node = g_.write().nodes[at(loss.last)];
    node.op_type = "BinaryCrossEntropy";
    node.attributes.clear();
    node.inputs = {loss.input, loss.target};
    node.metadata[fx_node_key] = fmt::format(
        "%{} : [num_users=1] = call_function[target=torch.ops.aten.binary_cross_entropy.default](args = (%{}, %{}, "
        "None, {}), kwargs = {{}})",
        program_.groups[at(group)].text.name, name_of_input(loss), loss.target_name, loss.reduction);
  }

  /// What calls beside the losses name of their inputs.
  void look_at_readers() {
    std::vector<bool> of_loss(old_.nodes.size(), false);
    for (const Loss& loss : losses_) {
      others_.try_emplace(loss.input);
      for (std::int32_t n : loss.nodes) of_loss[at(n)] = true;
    }
    for (const FxGroup& call : program_.groups) {
      const std::vector<ValueId> names = tensors_of(call);
      if (of_loss[at(call.nodes.back())] || names.size() > most_names) continue;
      for (std::int32_t n : call.nodes)
        for (GraphValueId id : old_.nodes[at(n)].inputs) {
          const auto it = others_.find(id);
          const FxGroup* maker = it == others_.end() ? nullptr : maker_of(id);
          if (!maker || std::exchange(it->second.last, &call) == &call) continue;
          for (const ValueId named : names) {
            const std::string_view name = program_.names[at(named.index)];
            if (name == maker->text.name)
              ++it->second.users;
            else if (op_of_name(name) == op_of_name(maker->text.name))
              it->second.name = name;
          }
        }
    }
  }

  const FxGroup* maker_of(GraphValueId id) const {
    const std::int32_t by = nodes_.maker[at(id)], group = by < 0 ? -1 : nodes_.group[at(by)];
    return group < 0 || program_.groups[at(group)].name < 0 ? nullptr : &program_.groups[at(group)];
  }

  /// A loss that shares its logarithm with an earlier one reads the same tensor, or an equal one that an optimizer
  /// merged with it: `D(fake)` after `D(fake.detach())`. It is another where the earlier calls are all the users that
  /// the tensor has, and a call of the file has another name for it.
  std::string_view name_of_input(const Loss& loss) {
    const bool shared = !logs_.insert(loss.log).second;
    const Other& other = others_.at(loss.input);
    const FxGroup* maker = maker_of(loss.input);
    if (!shared || !maker || other.name.empty()) return loss.input_name;
    const std::int64_t users = users_of(note_at(old_.nodes[at(maker->nodes.back())].metadata, fx_node_key));
    return uses_of_input + other.users < users ? loss.input_name : other.name;
  }

  /// Nodes of the losses that nothing reads any more, and the numbers that they alone read.
  void drop_unread() {
    Graph& g = g_.write();
    std::vector<std::int64_t> reads(g.values.size(), 0);
    for (const GraphNode& n : g.nodes)
      for (GraphValueId id : n.inputs)
        if (id >= 0) ++reads[at(id)];
    for (GraphValueId id : g.outputs) ++reads[at(id)];
    std::vector<bool> gone(g.nodes.size(), false);
    for (const Loss& loss : losses_)
      for (std::int32_t n : loss.nodes) {
        const GraphNode& node = g.nodes[at(n)];
        if (n == loss.last || gone[at(n)] ||
            std::ranges::any_of(node.outputs, [&](GraphValueId id) { return id >= 0 && reads[at(id)] > 0; }))
          continue;
        gone[at(n)] = true;
        for (GraphValueId id : node.inputs) {
          if (id < 0 || --reads[at(id)] > 0) continue;
          if (const auto t = g.initializers.find(id); t != g.initializers.end() && t->second.sizes.empty())
            g.initializers.erase(t);
        }
      }
    std::size_t n = 0;
    std::erase_if(g.nodes, [&](const GraphNode&) { return gone[n++]; });
  }

  const Graph& old_;
  ChangedGraph g_;
  const FxProgram& program_;
  const GroupedNodes nodes_;
  std::vector<std::vector<std::int32_t>> readers_;  ///< by value
  std::vector<Loss> losses_;                        ///< in the order of the file
  std::unordered_map<GraphValueId, Other> others_;  ///< by input of a loss
  std::unordered_set<std::int32_t> logs_;           ///< of the losses that were joined
};

}  // namespace

std::optional<Graph> join_losses(const Graph& graph, const FxProgram& program) {
  return LossJoiner(graph, program).run();
}

}  // namespace memplan::onnx_format
