// nn.RNN, which ONNX files have step by step: each step's sum and function, and the tensors that are cut and joined.
#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/restore/passes.h"
#include "estimators/restore/recurrent_lines.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// CUDA runs all layers as one call of cuDNN.
constexpr std::array kinds{
    RecurrentLine{"_VF.rnn_tanh(", "aten::rnn_tanh.input"},
    RecurrentLine{"_VF.rnn_relu(", "aten::rnn_relu.input"},
};

const RecurrentLine* kind_of(const Call& call) { return recurrent_line_of(call, kinds); }

std::size_t at(ValueId id) { return static_cast<std::size_t>(id.index); }

/// What one call of the module became.
struct Steps {
  std::string_view op;
  std::vector<std::size_t> calls;
  std::vector<Arg> weights;  ///< in the order of the module's flat weights
  ValueId input, hidden, output, last_hidden;
  std::int64_t layers = 0;
  bool biases = false, bidirectional = false, batch_first = false;
};

/// The module's weights, by their names: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, the same with _reverse …
bool find_weights(const Tape& tape, std::string_view path, Steps& s) {
  for (const ValueId id : tape.parameters) {
    const std::string& name = tape.values[at(id)].name;
    if (!path.empty() && (!name.starts_with(path) || name.size() <= path.size() || name[path.size()] != '.')) continue;
    const std::string_view leaf = std::string_view(name).substr(path.empty() ? 0 : path.size() + 1);
    if (!leaf.starts_with("weight_") && !leaf.starts_with("bias_")) continue;
    s.weights.push_back({id});
    s.biases = s.biases || leaf.starts_with("bias_ih_l");
    s.bidirectional = s.bidirectional || leaf.ends_with("_reverse");
    if (leaf.starts_with("weight_hh_l") && !leaf.ends_with("_reverse")) ++s.layers;
  }
  const std::int64_t each = (s.biases ? 4 : 2) * (s.bidirectional ? 2 : 1);
  return s.layers > 0 && static_cast<std::int64_t>(s.weights.size()) == each * s.layers;
}

/// The calls of each run through such a module, by its scope, and what others read of them.
class Runs {
 public:
  explicit Runs(const Tape& tape) : tape_(tape), maker_(makers_of(tape)), kind_(tape.scopes.size(), nullptr) {
    for (const Call& call : tape.calls)
      if (const RecurrentLine* kind = kind_of(call); kind && call.scope >= 0)
        kind_[static_cast<std::size_t>(call.scope)] = kind;
    for (std::size_t i = 0; i < tape.calls.size(); ++i) {
      if (is_step(tape.calls[i])) calls_[tape.calls[i].scope].push_back(i);
      for_each_value(tape.calls[i], [&](ValueId id) { look(id, tape.calls[i]); });
    }
    for (const ValueId id : tape.outputs)
      if (id.valid()) look(id, Call());
  }

  const std::map<std::int32_t, std::vector<std::size_t>>& calls() const { return calls_; }

  std::optional<Steps> steps_of(std::int32_t scope) const {
    Steps s;
    s.op = kind_[static_cast<std::size_t>(scope)]->op;
    s.calls = calls_.at(scope);
    if (!find_weights(tape_, tape_.scopes[static_cast<std::size_t>(scope)].path, s) || !find_input(s, scope) ||
        !find_hidden(s, scope) || !find_results(s, scope))
      return std::nullopt;
    return s;
  }

 private:
  bool is_step(const Call& call) const {
    const RecurrentLine* kind = call.scope < 0 ? nullptr : kind_[static_cast<std::size_t>(call.scope)];
    return kind && (call.source.empty() || kind_of(call) == kind);
  }

  /// The scope of the run that makes a value; -1: none.
  std::int32_t run_of(ValueId id) const {
    const std::int32_t by = maker_[at(id)];
    return by >= 0 && is_step(tape_.calls[static_cast<std::size_t>(by)])
               ? tape_.calls[static_cast<std::size_t>(by)].scope
               : -1;
  }

  void look(ValueId id, const Call& reader) {
    const std::int32_t run = run_of(id);
    if (run < 0 || (is_step(reader) && reader.scope == run)) return;
    std::vector<ValueId>& read = read_[run];
    if (read.size() < 3 && std::ranges::find(read, id) == read.end()) read.push_back(id);
  }

  /// Sequence first, the layers take and give a turned tensor; batch first, they turn it themselves.
  bool find_input(Steps& s, std::int32_t scope) const {
    const auto first = std::ranges::find(s.calls, "aten::linear",
                                         [&](std::size_t i) -> const std::string& { return tape_.calls[i].op; });
    if (first == s.calls.end()) return false;
    s.input = value_at(tape_.calls[*first], 0);
    if (!s.input.valid() || run_of(s.input) != scope) return s.input.valid();
    const Call& turn = tape_.calls[static_cast<std::size_t>(maker_[at(s.input)])];
    s.batch_first = turn.op == "aten::transpose.int" || turn.op == "aten::permute";
    s.input = s.batch_first ? value_at(turn, 0) : ValueId();
    return s.input.valid() && run_of(s.input) != scope;
  }

  /// Of the tensors that the calls read from outside, the first states are what is neither the input nor a weight.
  bool find_hidden(Steps& s, std::int32_t scope) const {
    bool one = true;
    for (const std::size_t i : s.calls)
      for_each_value(tape_.calls[i], [&](ValueId id) {
        if (run_of(id) == scope || id == s.input || tape_.values[at(id)].kind == ValueKind::parameter) return;
        one = one && (!s.hidden.valid() || s.hidden == id);
        s.hidden = id;
      });
    return one && s.hidden.valid();
  }

  /// What others read: the output, the last states, or both. torch/_decomp/decompositions.py: the states of all layers
  /// are stacked, steps are joined.
  bool find_results(Steps& s, std::int32_t scope) const {
    const auto read = read_.find(scope);
    if (read == read_.end()) return false;
    for (const ValueId id : read->second)
      (tape_.calls[static_cast<std::size_t>(maker_[at(id)])].op == "aten::stack" ? s.last_hidden : s.output) = id;
    return static_cast<std::size_t>(s.output.valid()) + static_cast<std::size_t>(s.last_hidden.valid()) ==
           read->second.size();
  }

  const Tape& tape_;
  const std::vector<std::int32_t> maker_;
  std::vector<const RecurrentLine*> kind_;  ///< by scope
  std::map<std::int32_t, std::vector<std::size_t>> calls_;
  std::map<std::int32_t, std::vector<ValueId>> read_;  ///< at most three of each run: more than two are no results
};

}  // namespace

void recover_recurrent_layers(Tape& tape, const TrainingSetup& setup) {
  if (std::ranges::none_of(tape.calls, [](const Call& c) { return kind_of(c) != nullptr; })) return;
  std::vector<Steps> found;
  {
    const Runs runs(tape);
    for (const auto& [scope, calls] : runs.calls())
      if (auto s = runs.steps_of(scope)) found.push_back(std::move(*s));
  }
  std::map<std::string_view, std::int64_t> counts;
  std::vector<bool> gone(tape.calls.size(), false);
  for (Steps& s : found) {
    for (ValueId* id : {&s.output, &s.last_hidden})
      if (!id->valid()) *id = tape.add_value(TapeValue{});
    for (const std::size_t i : s.calls) gone[i] = i != s.calls.back();
    Call& call = tape.calls[s.calls.back()];  // its place, line and statement
    call.op = s.op;
    // What drops out between the layers is not in the file.
    call.args = {{s.input},
                 {s.hidden},
                 {Arg::List(s.weights)},
                 {s.biases},
                 {s.layers},
                 s.layers > 1 ? Arg{} : Arg{0.0},
                 {setup.mode == Mode::training},
                 {s.bidirectional},
                 {s.batch_first}};
    call.kwargs.clear();
    call.outputs = {s.output, s.last_hidden};
    call.known_shapes.clear();
    ++counts[s.op];
  }
  std::size_t at = 0;
  std::erase_if(tape.calls, [&](const Call&) { return gone[at++]; });
  for (const auto& [op, count] : counts)
    tape.recovered.push_back({std::string(op), "the steps that an exporter makes of the layers", count,
                              Evidence::told_by_source_line, About::op});
}

}  // namespace memplan
