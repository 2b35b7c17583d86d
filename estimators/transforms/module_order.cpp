#include "estimators/transforms/module_order.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>

namespace memplan {

namespace {

struct Module {
  std::vector<std::string_view> order;
  std::map<std::string_view, std::unique_ptr<Module>> children;
  std::vector<ValueId> parameters, buffers;
};

Module& owner(Module& root, std::string_view name) {
  Module* at = &root;
  for (auto dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.')) {
    const std::string_view part = name.substr(0, dot);
    name.remove_prefix(dot + 1);
    auto& child = at->children[part];
    if (!child) {
      child = std::make_unique<Module>();
      at->order.push_back(part);
    }
    at = child.get();
  }
  return *at;
}

void collect(const Module& m, std::vector<ValueId>& out) {
  for (std::string_view child : m.order) collect(*m.children.at(child), out);
  out.insert(out.end(), m.parameters.begin(), m.parameters.end());
  out.insert(out.end(), m.buffers.begin(), m.buffers.end());
}

}  // namespace

std::vector<ValueId> module_order(const Tape& tape) {
  Module root;
  for (ValueId id : tape.parameters) owner(root, tape.values[id.index].name).parameters.push_back(id);
  for (ValueId id : tape.buffers) owner(root, tape.values[id.index].name).buffers.push_back(id);
  std::vector<ValueId> out;
  collect(root, out);
  for (std::size_t i = 0; i < tape.values.size(); ++i)
    if (tape.values[i].kind == ValueKind::constant) out.push_back({static_cast<std::int32_t>(i)});
  return out;
}

std::vector<FlatWeights> flattened_groups(const Tape& tape) {
  std::vector<FlatWeights> out;
  for (const Call& call : tape.calls) {
    if (call.op != "aten::lstm.input" && call.op != "aten::gru.input" && call.op != "aten::rnn_tanh.input" &&
        call.op != "aten::rnn_relu.input")
      continue;
    const auto* list = call.args.size() > 2 ? std::get_if<Arg::List>(&call.args[2].value) : nullptr;
    if (!list) continue;
    FlatWeights group;
    for (const Arg& a : *list)
      if (const auto* id = std::get_if<ValueId>(&a.value); id && tape.values[id->index].kind == ValueKind::parameter)
        group.weights.push_back(*id);
    if (group.weights.empty() || group.weights.size() != list->size() ||
        std::ranges::find(out, group.weights, &FlatWeights::weights) != out.end())
      continue;
    const auto* biased = call.args.size() > 3 ? std::get_if<bool>(&call.args[3].value) : nullptr;
    const auto& sizes = tape.values[group.weights[0].index].sizes;  // gates x hidden, …
    if (biased && !*biased && !sizes.empty()) group.biases = static_cast<std::int64_t>(list->size()) * sizes[0];
    out.push_back(std::move(group));
  }
  return out;
}

}  // namespace memplan
