// nn.RNN, which ONNX files have step by step: each step's sum and function, and the tensors that are cut and joined.
#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "estimators/restore/passes.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// How torch/nn/modules/rnn.py calls the layers; CUDA runs all of them as one call of cuDNN.
struct Layers {
  std::string_view line, op;
};
constexpr std::array kinds{
    Layers{"_VF.rnn_tanh(", "aten::rnn_tanh.input"},
    Layers{"_VF.rnn_relu(", "aten::rnn_relu.input"},
};

const Layers* kind_of(const Call& call) {
  if (!call.source.starts_with("torch/nn/modules/rnn.py") || call.op.starts_with("aten::rnn_")) return nullptr;
  const auto found =
      std::ranges::find_if(kinds, [&](const Layers& k) { return call.source.find(k.line) != std::string::npos; });
  return found == kinds.end() ? nullptr : &*found;
}

std::size_t at(ValueId id) { return static_cast<std::size_t>(id.index); }

/// What one call of the module became.
struct Steps {
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

/// Sequence first, the layers take and give a turned tensor; batch first, they turn it themselves.
bool find_input(const Tape& tape, Steps& s, const std::vector<std::int64_t>& maker) {
  for (const std::size_t i : s.calls) {
    const Call& call = tape.calls[i];
    if (call.op != "aten::linear") continue;
    s.input = value_at(call, 0);
    const std::int64_t by = s.input.valid() ? maker[at(s.input)] : -1;
    if (by < 0) return s.input.valid();
    const Call& turn = tape.calls[static_cast<std::size_t>(by)];
    s.batch_first = turn.op == "aten::transpose.int" || turn.op == "aten::permute";
    s.input = s.batch_first ? value_at(turn, 0) : ValueId();
    return s.input.valid() && maker[at(s.input)] < 0;
  }
  return false;
}

/// Of the tensors that the calls read from outside, the first states are what is neither the input nor a weight.
bool find_hidden(const Tape& tape, Steps& s, const std::vector<std::int64_t>& maker) {
  bool one = true;
  for (const std::size_t i : s.calls)
    for_each_value(tape.calls[i], [&](ValueId id) {
      if (maker[at(id)] >= 0 || id == s.input || tape.values[at(id)].kind == ValueKind::parameter) return;
      one = one && (!s.hidden.valid() || s.hidden == id);
      s.hidden = id;
    });
  return one && s.hidden.valid();
}

/// What others read: the output, the last states, or both.
bool find_results(const Tape& tape, Steps& s, const std::vector<std::int64_t>& maker) {
  std::vector<ValueId> read;
  const auto look = [&](ValueId id) {
    if (id.valid() && maker[at(id)] >= 0 && std::ranges::find(read, id) == read.end()) read.push_back(id);
  };
  std::unordered_set<std::size_t> inside(s.calls.begin(), s.calls.end());
  for (std::size_t i = 0; i < tape.calls.size(); ++i)
    if (!inside.contains(i)) for_each_value(tape.calls[i], look);
  for (const ValueId id : tape.outputs) look(id);
  if (read.empty() || read.size() > 2) return false;
  // torch/_decomp/decompositions.py: the states of all layers are stacked, steps are joined.
  for (const ValueId id : read)
    (tape.calls[static_cast<std::size_t>(maker[at(id)])].op == "aten::stack" ? s.last_hidden : s.output) = id;
  return static_cast<std::size_t>(s.output.valid()) + static_cast<std::size_t>(s.last_hidden.valid()) == read.size();
}

std::optional<Steps> steps_from(const Tape& tape, std::size_t first, const Layers& kind) {
  Steps s;
  const std::int32_t scope = tape.calls[first].scope;
  if (scope < 0 || !find_weights(tape, tape.scopes[static_cast<std::size_t>(scope)].path, s)) return std::nullopt;
  std::vector<std::int64_t> maker(tape.values.size(), -1);
  for (std::size_t i = first; i < tape.calls.size(); ++i) {
    const Call& call = tape.calls[i];
    if (call.scope != scope || (kind_of(call) != &kind && !call.source.empty())) continue;
    s.calls.push_back(i);
    for (const ValueId id : call.outputs)
      if (id.valid()) maker[at(id)] = static_cast<std::int64_t>(i);
  }
  if (!find_input(tape, s, maker) || !find_hidden(tape, s, maker) || !find_results(tape, s, maker)) return std::nullopt;
  return s;
}

}  // namespace

void recover_recurrent_layers(Tape& tape, const TrainingSetup& setup) {
  std::array<std::int64_t, kinds.size()> counts{};
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const Layers* kind = kind_of(tape.calls[i]);
    auto s = kind ? steps_from(tape, i, *kind) : std::nullopt;
    if (!s) continue;
    for (ValueId* id : {&s->output, &s->last_hidden})
      if (!id->valid()) *id = tape.add_value(TapeValue{});
    Call call = tape.calls[s->calls.back()];  // its place, line and statement
    call.op = kind->op;
    // What drops out between the layers is not in the file.
    call.args = {{s->input},
                 {s->hidden},
                 {Arg::List(s->weights)},
                 {s->biases},
                 {s->layers},
                 s->layers > 1 ? Arg{} : Arg{0.0},
                 {setup.mode == Mode::training},
                 {s->bidirectional},
                 {s->batch_first}};
    call.kwargs.clear();
    call.outputs = {s->output, s->last_hidden};
    call.known_shapes.clear();
    tape.calls[s->calls.back()] = std::move(call);
    s->calls.pop_back();
    const std::unordered_set<std::size_t> gone(s->calls.begin(), s->calls.end());
    std::vector<Call> calls;
    for (std::size_t k = 0; k < tape.calls.size(); ++k)
      if (!gone.contains(k)) calls.push_back(std::move(tape.calls[k]));
    tape.calls = std::move(calls);
    ++counts[static_cast<std::size_t>(kind - kinds.data())];
  }
  for (std::size_t k = 0; k < kinds.size(); ++k)
    if (counts[k] > 0)
      tape.recovered.push_back({std::string(kinds[k].op), "the steps that an exporter makes of the layers", counts[k],
                                Evidence::told_by_source_line, About::op});
}

}  // namespace memplan
