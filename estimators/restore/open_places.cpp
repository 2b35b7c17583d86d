#include "estimators/restore/open_places.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "estimators/facts/libraries.h"
#include "estimators/restore/checkpoint_lines.h"

namespace memplan {

namespace {

/// Of autograd functions of the model's own.
std::size_t applications(const Tape& tape) {
  std::size_t count = 0;
  std::int32_t last = -1;
  for (const Call& call : tape.calls) {
    if (call.function >= 0 && call.function != last) ++count;
    last = call.function;
  }
  return count;
}

/// Stretches that the exporter has marked, or a line calls. A recording saw them itself.
std::size_t marked_checkpoints(const Tape& tape) {
  std::set<std::int32_t> marked;
  if (!tape.exported.recorded)
    for (const Call& call : tape.calls)
      if (call.checkpoint >= 0) marked.insert(call.checkpoint);
  return marked.size();
}

/// Calls of functions that compute something else while they are exported, where that was not put back.
std::size_t other_branches(const Tape& tape) {
  std::set<std::pair<std::int32_t, std::string_view>> restored;
  for (const Call& c : tape.calls)
    if (c.op == "aten::linalg_solve_triangular") restored.emplace(c.scope, c.source);
  return static_cast<std::size_t>(std::count_if(tape.calls.begin(), tape.calls.end(), [&](const Call& c) {
    return !restored.contains({c.scope, c.source}) && fact_of_line("branches_while_traced", c.source);
  }));
}

}  // namespace

void note_open_places(Tape& tape) {
  const auto tell = [&](std::string code, std::size_t count, About about, const char* text) {
    if (count == 0) return;
    Fact fact{std::move(code), text, Evidence::told_by_source_line, about};
    fact.count = static_cast<std::int64_t>(count);
    tape.notes.push_back(std::move(fact));
  };
  tell("MP016 own-function", applications(tape), About::function,
       "the model has an autograd.Function of its own; the file shows the ops of its forward pass, not what it keeps: "
       "it counts as one that keeps its inputs and makes the rest again in its backward pass");
  tell("MP026 traced-branch", other_branches(tape), About::branch,
       "a function of the library computes this another way while it is exported; eager code needs other bytes there");
  tell("MP012 own-checkpoint", marked_checkpoints(tape), About::checkpointing,
       "the model checkpoints activations by itself, and so does the estimate; the line that calls "
       "torch.utils.checkpoint tells where such a stretch ends");
  if (tape.exported.checkpoints_seen) return;
  tell("MP012 own-checkpoint", open_checkpoints(tape).size(), About::checkpointing,
       "the model checkpoints activations by itself on one side of a condition; memplan counts them as kept");
  tell("MP012 own-checkpoint", hidden_checkpoints(tape).size(), About::checkpointing,
       "a method of the model's calls these modules, and the file does not show its lines: it may checkpoint them; "
       "memplan counts their activations as kept");
}

void checkpoint_open_places(Tape& tape) {
  if (!tape.checkpoints.empty()) return;
  if (!tape.reading.own_checkpoints) return;
  tape.checkpoints = open_checkpoints(tape);
  if (tape.checkpoints.empty()) tape.checkpoints = hidden_checkpoints(tape);
}

}  // namespace memplan
