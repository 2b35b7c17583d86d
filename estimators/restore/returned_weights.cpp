#include "estimators/restore/returned_weights.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "estimators/facts/libraries.h"
#include "estimators/restore/statement.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

class WeightHolders {
 public:
  WeightHolders(const Tape& tape, const Frames& frames) : tape_(tape), frames_(frames) {}

  std::vector<std::int32_t> run() {
    std::vector<std::int32_t> until(tape_.values.size(), -1);
    for (std::size_t i = 0; i < tape_.calls.size(); ++i) {
      const Call& call = tape_.calls[i];
      if (is_product(call.op) && !call.args.empty())
        if (const auto* id = std::get_if<ValueId>(&call.args[0].value))
          if (const auto made = weights_.find(id->index); made != weights_.end())
            until[static_cast<std::size_t>(id->index)] = held(static_cast<std::int32_t>(made->second));
      if (averages(call)) until[static_cast<std::size_t>(call.outputs[0].index)] = held(static_cast<std::int32_t>(i));
      note_weights(i);
    }
    return until;
  }

 private:
  static bool is_product(std::string_view op) {
    return op == "aten::matmul" || op == "aten::bmm" || op == "aten::einsum";
  }

  /// nn.MultiheadAttention returns the mean over its heads beside the result (torch/nn/functional.py).
  bool averages(const Call& call) const {
    return call.op == "aten::mean.dim" && call.scope >= 0 && call.outputs.size() == 1 && call.outputs[0].valid() &&
           scope(call.scope).module_class == "torch.nn.modules.activation.MultiheadAttention";
  }

  const Scope& scope(std::int32_t s) const { return tape_.scopes[static_cast<std::size_t>(s)]; }

  /// Softmax over scores, and what only drops or converts its results.
  void note_weights(std::size_t i) {
    const Call& call = tape_.calls[i];
    if (call.scope < 0) return note_dropped(i);
    const std::string& owner = scope(call.scope).module_class;
    if (!owner.empty() && !owner.starts_with("transformers.")) return note_dropped(i);
    if (call.op.starts_with("aten::softmax") && may_return(i))
      for (ValueId id : call.outputs) weights_[id.index] = i;
    else
      note_dropped(i);
  }

  /// A helper gives them beside the result, "out, weights = attention_interface(self, q, k, v)". Modules that compute
  /// them in lines of their own may return them only if they are asked to, which no line tells: of classes that always
  /// do there are rows.
  bool may_return(std::size_t i) const {
    const Call& call = tape_.calls[i];
    if (always_returns(call)) return true;
    const Line& line = frames_.line(call.scope, frames_.line_of(call.scope, static_cast<std::int32_t>(i)));
    const auto& targets = frames_.binding(line).targets;
    return targets.size() == 1 && targets[0].size() > 1;
  }

  /// torch.export names no class of a module that is called `self`; its lines say in which file it is.
  bool always_returns(const Call& call) const {
    const std::string& owner = scope(call.scope).module_class;
    if (!owner.empty()) return fact_of_class("returns_weights", owner) != nullptr;
    std::string file = call.source.substr(0, call.source.find(".py:"));
    std::ranges::replace(file, '/', '.');
    return std::ranges::any_of(library_facts("returns_weights"),
                               [&](const LibraryFact& f) { return f.subject.starts_with(file + "."); });
  }

  /// A dropout is a module of its own: the weights are those of the module that called it.
  void note_dropped(std::size_t i) {
    const Call& call = tape_.calls[i];
    const bool same = call.op == "aten::dropout" || call.op == "aten::type_as" || call.op == "aten::to.dtype" ||
                      call.op == "aten::view" || call.op == "aten::reshape";
    const auto* from = !same || call.args.empty() ? nullptr : std::get_if<ValueId>(&call.args[0].value);
    const auto it = from ? weights_.find(from->index) : weights_.end();
    if (it == weights_.end()) return;
    const std::size_t softmax = it->second;
    for (ValueId id : call.outputs) weights_[id.index] = softmax;
  }

  /// Until where callers hold what call `made` gives; -1: the module returns no tuple.
  std::int32_t held(std::int32_t made) const {
    std::int32_t until = -1;
    for (std::int32_t s = tape_.calls[static_cast<std::size_t>(made)].scope; s >= 0 && frames_.parent(s) >= 0;
         s = frames_.parent(s)) {
      const std::int32_t caller = frames_.parent(s);
      const auto place = place_of(s, caller);
      if (!place) break;
      const std::size_t line = frames_.line_of(caller, made);
      until = std::max(until, frames_.rebound(caller, line, place->second));
      // What a loop over layers collects is another result of the model, if it is one at all.
      if (place->first == "_" || is_numbered(scope(s).path)) break;
    }
    return until;
  }

  static bool is_numbered(std::string_view path) {
    const std::string_view leaf = path.substr(path.rfind('.') + 1);
    return !leaf.empty() && leaf.find_first_not_of("0123456789") == leaf.npos;
  }

  /// The name that `caller`'s frame gives what module `s` returns beside its result, and its place among the targets.
  std::optional<std::pair<std::string_view, std::size_t>> place_of(std::int32_t s, std::int32_t caller) const {
    const std::int32_t b = scope(s).binding;
    if (b < 0) return std::nullopt;
    const auto& targets = tape_.bindings[static_cast<std::size_t>(b)].targets;
    if (targets.size() != 1 || targets[0].empty()) return std::nullopt;
    const auto& names = targets[0];
    if (names.size() == 2) return std::pair{std::string_view(names[1]), std::size_t{1}};
    if (names.size() > 2) {
      const auto named = std::ranges::find_if(names, [](const auto& n) {
        return n.find("attn") != n.npos || n.find("weights") != n.npos || n.find("probs") != n.npos;
      });
      if (named == names.end() || named == names.begin()) return std::nullopt;
      return std::pair{std::string_view(*named), static_cast<std::size_t>(named - names.begin())};
    }
    if (!is_tuple(caller, names[0])) return std::nullopt;
    return std::pair{std::string_view(names[0]), std::size_t{0}};
  }

  /// Lines of the frame take an element of what the name holds, or the name says that it is several.
  bool is_tuple(std::int32_t caller, std::string_view name) const {
    if (name.ends_with("outputs")) return true;
    const std::string element = std::string(name) + "[";
    const auto takes = [&](std::string_view text) {
      return parse_statement(text).value.find(element) != std::string_view::npos;
    };
    const std::int32_t end = frames_.end(caller);
    for (std::size_t i = 0; i < tape_.scopes.size(); ++i)
      if (tape_.scopes[i].parent == caller && takes(tape_.scopes[i].source)) return true;
    for (std::int32_t i = frames_.begin(caller); i >= 0 && i <= end; ++i)
      if (const Call& c = tape_.calls[static_cast<std::size_t>(i)]; c.scope == caller && takes(c.source)) return true;
    return false;
  }

  const Tape& tape_;
  const Frames& frames_;
  std::map<std::int32_t, std::size_t> weights_;  ///< values -> the softmax that they come of
};

}  // namespace

std::vector<std::int32_t> held_as_weights(const Tape& tape, const Frames& frames) {
  return WeightHolders(tape, frames).run();
}

}  // namespace memplan
