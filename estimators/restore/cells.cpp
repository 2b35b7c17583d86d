#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "estimators/restore/passes.h"
#include "estimators/restore/recurrent_lines.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// CUDA runs each as one kernel (_thnn_fused_gru_cell).
constexpr std::array cells{
    RecurrentLine{"_VF.gru_cell(", "aten::gru_cell"},
    RecurrentLine{"_VF.lstm_cell(", "aten::lstm_cell"},
};

const RecurrentLine* cell_of(const Call& call) { return recurrent_line_of(call, cells); }

/// A stretch of calls that an exporter made of one cell.
struct CellCalls {
  std::size_t first = 0, end = 0;
  Arg input, hidden, weight_input, weight_hidden, bias_input, bias_hidden;
  ValueId cell_state;        ///< of an LSTM: read from outside
  ValueId next, next_state;  ///< what it makes
};

/// The results of the stretch that are not read inside of it.
std::vector<ValueId> open_results(const Tape& tape, std::size_t first, std::size_t end) {
  std::vector<ValueId> made;
  for (std::size_t i = first; i < end; ++i)
    for (ValueId id : tape.calls[i].outputs) made.push_back(id);
  for (std::size_t i = first; i < end; ++i) for_each_value(tape.calls[i], [&](ValueId id) { std::erase(made, id); });
  return made;
}

/// Its two products, by the names of the weights.
bool find_products(const Tape& tape, CellCalls& s) {
  for (std::size_t i = s.first; i < s.end; ++i) {
    const Call& call = tape.calls[i];
    if (call.op != "aten::linear" || call.args.size() < 2) continue;
    const auto* weight = std::get_if<ValueId>(&call.args[1].value);
    if (!weight) return false;
    const std::string& name = tape.values[static_cast<std::size_t>(weight->index)].name;
    const Arg bias = call.args.size() > 2 ? call.args[2] : Arg{};
    if (name.find("weight_ih") != std::string::npos)
      s.input = call.args[0], s.weight_input = call.args[1], s.bias_input = bias;
    else if (name.find("weight_hh") != std::string::npos)
      s.hidden = call.args[0], s.weight_hidden = call.args[1], s.bias_hidden = bias;
    else
      return false;
  }
  return !s.weight_input.is_none() && !s.weight_hidden.is_none();
}

/// c' = f * c + i * g is the last sum; c is what a product of it reads from outside.
bool find_cell_state(const Tape& tape, CellCalls& s) {
  std::vector<ValueId> made;
  for (std::size_t i = s.first; i < s.end; ++i) {
    const Call& call = tape.calls[i];
    if (call.op == "aten::add.Tensor") s.next_state = call.outputs.at(0);
    if (call.op == "aten::mul.Tensor")
      for_each_value(call, [&](ValueId id) {
        if (std::find(made.begin(), made.end(), id) == made.end()) s.cell_state = id;
      });
    made.insert(made.end(), call.outputs.begin(), call.outputs.end());
  }
  return s.cell_state.valid() && s.next_state.valid();
}

std::optional<CellCalls> cell_calls_at(const Tape& tape, std::size_t first, const RecurrentLine& cell) {
  const Call& head = tape.calls[first];
  CellCalls s;
  s.first = s.end = first;
  // A split of the gates may have no line of its own. A product with the same weight is the next turn's: no call need
  // lie between two turns of a loop.
  std::vector<ValueId> weights;
  for (; s.end < tape.calls.size() && tape.calls[s.end].scope == head.scope; ++s.end) {
    const Call& call = tape.calls[s.end];
    if (!call.source.empty() && cell_of(call) != &cell) break;
    if (call.op != "aten::linear") continue;
    const ValueId weight = value_at(call, 1);
    if (std::ranges::count(weights, weight) > 0) break;
    weights.push_back(weight);
  }
  while (s.end > first && tape.calls[s.end - 1].source.empty()) --s.end;
  if (!find_products(tape, s)) return std::nullopt;
  const bool lstm = cell.op == "aten::lstm_cell";
  if (lstm && !find_cell_state(tape, s)) return std::nullopt;
  const std::vector<ValueId> results = open_results(tape, s.first, s.end);
  const Call& last = tape.calls[s.end - 1];
  if (results.size() != 1 || last.outputs.size() != 1 || results.front() != last.outputs.front()) return std::nullopt;
  s.next = last.outputs.front();
  return s;
}

/// Nobody behind the stretch reads what it makes on its way.
bool is_closed(const Tape& tape, const CellCalls& s) {
  std::vector<bool> inside(tape.values.size(), false);
  for (std::size_t i = s.first; i < s.end; ++i)
    for (ValueId id : tape.calls[i].outputs)
      if (id.valid() && id != s.next && id != s.next_state) inside[static_cast<std::size_t>(id.index)] = true;
  const auto is_inside = [&](ValueId id) { return id.valid() && inside[static_cast<std::size_t>(id.index)]; };
  bool closed = std::none_of(tape.outputs.begin(), tape.outputs.end(), is_inside);
  for (std::size_t i = s.end; i < tape.calls.size() && closed; ++i)
    for_each_value(tape.calls[i], [&](ValueId id) { closed = closed && !is_inside(id); });
  return closed;
}

/// Calls of the stretch that make what the cell reads: a view without a line of its own. They stay before it.
std::vector<Call> calls_before(const Tape& tape, const CellCalls& s) {
  std::vector<ValueId> wanted{s.cell_state};
  for (const Arg& arg : {s.input, s.hidden}) for_each_value(arg, [&](ValueId id) { wanted.push_back(id); });
  std::vector<Call> out;
  for (std::size_t i = s.end; i-- > s.first;) {
    const Call& call = tape.calls[i];
    if (std::ranges::none_of(call.outputs, [&](ValueId id) { return std::ranges::count(wanted, id) > 0; })) continue;
    for_each_value(call, [&](ValueId id) { wanted.push_back(id); });
    out.insert(out.begin(), call);
  }
  return out;
}

}  // namespace

void recover_recurrent_cells(Tape& tape) {
  std::array<std::int64_t, cells.size()> counts{};
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const RecurrentLine* cell = cell_of(tape.calls[i]);
    const auto s = cell ? cell_calls_at(tape, i, *cell) : std::nullopt;
    if (!s || !is_closed(tape, *s)) continue;
    Call call = tape.calls[s->end - 1];  // its place, line and statement
    const bool lstm = s->next_state.valid();
    Arg state = s->hidden;
    if (lstm) state = Arg{Arg::List{s->hidden, Arg{s->cell_state}}};
    call.op = cell->op;
    call.args = {s->input, state, s->weight_input, s->weight_hidden, s->bias_input, s->bias_hidden};
    call.kwargs.clear();
    call.outputs = lstm ? std::vector<ValueId>{s->next, s->next_state} : std::vector<ValueId>{s->next};
    call.known_shapes.clear();
    std::vector<Call> before = calls_before(tape, *s);
    const auto at = tape.calls.begin() + static_cast<std::ptrdiff_t>(s->first);
    tape.calls.erase(at, tape.calls.begin() + static_cast<std::ptrdiff_t>(s->end));
    tape.calls.insert(tape.calls.begin() + static_cast<std::ptrdiff_t>(i), std::move(call));
    tape.calls.insert(tape.calls.begin() + static_cast<std::ptrdiff_t>(i), before.begin(), before.end());
    i += before.size();
    ++counts[static_cast<std::size_t>(cell - cells.data())];
  }
  for (std::size_t k = 0; k < cells.size(); ++k)
    if (counts[k] > 0)
      tape.recovered.push_back({std::string(cells[k].op), "the calls that an exporter makes of a cell", counts[k],
                                Evidence::told_by_source_line, About::op});
}

}  // namespace memplan
