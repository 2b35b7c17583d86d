#include <algorithm>
#include <bitset>
#include <deque>
#include <mutex>

#include "estimators/base/text.h"
#include "estimators/runtime/torch/aten/formula.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  for (;;) {
    const auto at = text.find(separator);
    out.push_back(trim(text.substr(0, at)));
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at + 1);
  }
}

constexpr std::size_t most_names = 64;  ///< that the formulas of one op read

/// "result" or "result1": the index of the output that a formula reads, -1 for other names.
int output_index(std::string_view name) {
  if (name == "result") return 0;
  if (name.size() == 7 && name.substr(0, 6) == "result") return name[6] - '0';
  return -1;
}

/// "grad0", "grad1", …
std::string_view gradient_name(std::size_t i) {
  thread_local std::deque<std::string> names;
  while (names.size() <= i) names.push_back("grad" + std::to_string(names.size()));
  return names[i];
}

}  // namespace

struct Derivatives::Parsed {
  std::string text;
  std::once_flag once;
  Formulas formulas;
};

Derivatives::Derivatives(std::string_view text) : parsed_(std::make_shared<Parsed>()) { parsed_->text = text; }

const Derivatives::Formulas* Derivatives::formulas() const {
  if (!parsed_) return nullptr;
  std::call_once(parsed_->once, [this] { parsed_->formulas = parse(parsed_->text); });
  return &parsed_->formulas;
}

Derivatives::Formulas Derivatives::parse(std::string_view text) {
  Formulas out;
  for (std::string_view part : split(text, '|')) {
    const auto colon = part.find(':');
    if (colon == std::string_view::npos)
      fail(ErrorKind::internal, "a derivative without an input: " + std::string(part));
    Entry e{{}, Formula(part.substr(colon + 1))};
    for (std::string_view name : split(part.substr(0, colon), ',')) e.inputs.emplace_back(name);
    out.entries.push_back(std::move(e));
  }
  // The generated code computes gradients in the alphabetical order of the inputs' names.
  std::stable_sort(out.entries.begin(), out.entries.end(),
                   [](const Entry& a, const Entry& b) { return a.inputs[0] < b.inputs[0]; });
  for (const Entry& e : out.entries)
    out.keep_order.insert(out.keep_order.end(), e.formula.names().begin(), e.formula.names().end());
  std::sort(out.keep_order.begin(), out.keep_order.end());
  out.keep_order.erase(std::unique(out.keep_order.begin(), out.keep_order.end()), out.keep_order.end());
  // Saved inputs come first, then saved outputs, each in alphabetical order.
  std::stable_partition(out.keep_order.begin(), out.keep_order.end(),
                        [](const std::string& name) { return output_index(name) < 0; });
  if (out.keep_order.size() > most_names) fail(ErrorKind::internal, "a derivative of many names: " + std::string(text));
  return out;
}

bool Derivatives::reads(std::string_view name) const {
  const Formulas* known = formulas();
  if (!known) return false;
  for (const Entry& e : known->entries)
    for (const std::string& n : e.formula.names())
      if (n == name) return true;
  return false;
}

std::vector<std::string> Derivatives::names() const {
  std::vector<std::string> out;
  const Formulas* known = formulas();
  if (!known) return out;
  out = known->keep_order;
  std::sort(out.begin(), out.end());
  return out;
}

Node* Derivatives::record(Run& run, const std::vector<std::pair<std::string_view, Tensor>>& inputs,
                          const TensorList& outputs, Bindings constants) const {
  return make(run, inputs, outputs, false, std::move(constants));
}

Node* Derivatives::record_in_place(Run& run, const std::vector<std::pair<std::string_view, Tensor>>& inputs,
                                   Bindings constants) const {
  Node* node = make(run, inputs, {}, true, std::move(constants));
  run.rebase(inputs[0].second, node);
  return node;
}

namespace {

/// The formula of one input that alone, among several, reads a name: what it reads is kept only where that input needs
/// a gradient. Null otherwise.
template <class Entry>
const Entry* only_reader(const std::vector<Entry>& entries, const std::string& name) {
  const Entry* reader = nullptr;
  int readers = 0;
  for (const Entry& e : entries)
    if (std::find(e.formula.names().begin(), e.formula.names().end(), name) != e.formula.names().end()) {
      ++readers;
      reader = &e;
    }
  return readers == 1 && reader->inputs.size() == 1 && entries.size() > 1 ? reader : nullptr;
}

/// The node's inputs are the differentiable ones, in the order of the schema: their names, and their tensors in
/// `edges`.
template <class Entry>
std::vector<std::string_view> differentiable_of(const std::vector<Entry>& entries,
                                                const std::vector<std::pair<std::string_view, Tensor>>& inputs,
                                                TensorList& edges) {
  std::vector<std::string_view> names;
  names.reserve(inputs.size()), edges.reserve(inputs.size());
  for (const auto& [name, tensor] : inputs)
    for (const Entry& e : entries)
      if (const auto it = std::find(e.inputs.begin(), e.inputs.end(), name); it != e.inputs.end()) {
        names.emplace_back(*it);
        edges.push_back(tensor);
      }
  return names;
}

/// Runs the formulas whose results somebody wants; by differentiable input.
TensorList gradients_of(Run& r, Node& n, const auto& entries, const std::vector<std::string_view>& differentiable,
                        Bindings& bound) {
  TensorList out(differentiable.size());
  for (const auto& e : entries) {
    std::vector<int> at;
    for (const std::string& name : e.inputs) {
      const auto it = std::find(differentiable.begin(), differentiable.end(), name);
      at.push_back(it == differentiable.end() ? -1 : static_cast<int>(it - differentiable.begin()));
    }
    auto wanted = [&](int i) { return i < static_cast<int>(at.size()) && at[i] >= 0 && n.wants(at[i]); };
    bool any = false;
    for (std::size_t i = 0; i < at.size(); ++i) any = any || wanted(static_cast<int>(i));
    if (!any) continue;
    ValueList results = e.formula.evaluate(r, bound, wanted);
    for (std::size_t i = 0; i < results.size() && i < at.size(); ++i)
      if (wanted(static_cast<int>(i)) && results[i].is_tensor()) out[at[i]] = results[i].tensor();
  }
  return out;
}

}  // namespace

Node* Derivatives::make(Run& run, const std::vector<std::pair<std::string_view, Tensor>>& inputs,
                        const TensorList& outputs, bool in_place, Bindings constants) const {
  const Formulas* known = formulas();
  if (!known) return nullptr;
  TensorList edges;
  std::vector<std::string_view> differentiable = differentiable_of(known->entries, inputs, edges);
  auto position = [&differentiable](std::string_view name) {
    return static_cast<int>(std::find(differentiable.begin(), differentiable.end(), name) - differentiable.begin());
  };
  Node* node = run.record(edges, outputs, {});
  if (!node) return nullptr;
  std::bitset<most_names> saved;  // of keep_order
  for (std::size_t at = 0; at < known->keep_order.size(); ++at) {
    const std::string& name = known->keep_order[at];
    // "other_meta": the shape and type of an input, without its memory.
    if (name.size() > 5 && name.substr(name.size() - 5) == "_meta") {
      for (const auto& [input, tensor] : inputs)
        if (tensor && name.substr(0, name.size() - 5) == input)
          constants.set(name, run.host(tensor->sizes, tensor->dtype));
      continue;
    }
    const int output = output_index(name);
    if (output >= 0) {
      run.save_output(node, in_place ? inputs[0].second : outputs.at(output));
      saved.set(at);
      continue;
    }
    auto it = std::find_if(inputs.begin(), inputs.end(), [&](const auto& p) { return p.first == name; });
    if (it == inputs.end()) continue;
    if (const Entry* reader = only_reader(known->entries, name); reader && !node->wants(position(reader->inputs[0])))
      continue;
    if (!it->second) {
      constants.set(name, Value());
      continue;
    }
    if (in_place && it == inputs.begin()) {
      ScopedValue<bool> no_grad(run.grad_mode, false);
      run.save(node, op::clone(run, it->second));
    } else {
      run.save(node, it->second);
    }
    saved.set(at);
  }
  // The names are views into the formulas, which the node keeps.
  node->backward = [kept = parsed_, differentiable = std::move(differentiable), saved,
                    constants = std::move(constants)](Run& r, Node& n, TensorList& g) {
    Bindings bound = constants;
    if (g[0]) bound.set("grad", g[0]);
    for (std::size_t i = 0; i < g.size(); ++i) bound.set(gradient_name(i), g[i] ? Value(g[i]) : Value());
    const Formulas& formulas = kept->formulas;
    for (std::size_t at = 0, i = 0; at < formulas.keep_order.size(); ++at)
      if (saved[at]) bound.set(formulas.keep_order[at], n.saved[i++]);
    return gradients_of(r, n, formulas.entries, differentiable, bound);
  };
  return node;
}

}  // namespace memplan
