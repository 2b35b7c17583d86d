#include "estimators/transforms/lowered.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>

#include "estimators/base/unwrap.h"
#include "estimators/graph/exporter_notes.h"
#include "estimators/pipeline.h"
#include "estimators/runtime/torch/autograd/call_failure.h"
#include "estimators/transforms/value_shapes.h"

namespace memplan {

namespace {

bool has_lines(const GraphNode& n) {
  const auto it = n.metadata.find(fx_node_key);
  return it != n.metadata.end() && !it->second.empty();
}

constexpr int tries = 32;  ///< calls whose lines alone are dropped before all are

std::string_view line_of(const GraphNode& n) {
  const auto it = n.metadata.find(fx_node_key);
  return it == n.metadata.end() ? std::string_view{} : std::string_view(it->second);
}

Model without_lines(Model model) {
  for (GraphNode& n : model.graphs.front().nodes) n.metadata.erase(fx_node_key);
  return model;
}

/// The first failure of a tape's calls, by its node's name or by its call.
struct Failed {
  Error why;
  std::ptrdiff_t call = -1;  ///< -1: no call of the tape failed
};

std::optional<Failed> run(const Result<Tape>& tape) {
  if (!tape) return Failed{tape.error()};
  std::ptrdiff_t call = -1;
  const auto ran = catching([&] {
    try {
      return value_shapes(*tape, TrainingSetup{}, Device{}).size();
    } catch (const CallFailure& failure) {
      call = static_cast<std::ptrdiff_t>(failure.call);
      throw;
    }
  });
  if (ran) return std::nullopt;
  return Failed{ran.error(), call};
}

std::optional<Failed> backward_of(const Result<Tape>& tape) {
  const auto ran = catching([&] {
    run_backward(*tape, TrainingSetup{}, Device{});
    return 0;
  });
  if (ran) return std::nullopt;
  return Failed{ran.error()};
}

/// Names that a failure tells nodes or their results by.
std::unordered_set<std::string> names_of(const Failed& failed, const Result<Tape>& tape) {
  std::unordered_set<std::string> names;
  if (!failed.why.where.empty()) names.insert(failed.why.where);
  // Steps of a call that takes several have no name; the last one has the call's.
  for (auto i = failed.call; tape && i >= 0 && i < std::ssize(tape->calls) && names.size() < 2; ++i)
    for (ValueId id : tape->calls[static_cast<std::size_t>(i)].outputs)
      if (id.valid())
        if (const std::string& name = tape->values[static_cast<std::size_t>(id.index)].name; !name.empty())
          names.insert(name);
  return names;
}

/// With an empty line at the call that failed, which sends its nodes the way of those without lines; none where no node
/// is known to be its.
std::optional<Model> without_line_of(const Model& model, const std::unordered_set<std::string>& names) {
  const auto& nodes = model.graphs.front().nodes;
  const auto& values = model.graphs.front().values;
  const auto at = std::ranges::find_if(nodes, [&](const GraphNode& n) {
    return has_lines(n) && (names.contains(n.name) || std::ranges::any_of(n.outputs, [&](GraphValueId id) {
                              return id >= 0 && names.contains(values[static_cast<std::size_t>(id)].name);
                            }));
  });
  if (at == nodes.end()) return std::nullopt;
  const std::string line(line_of(*at));
  Model out = model;
  for (GraphNode& n : out.graphs.front().nodes)
    if (line_of(n) == line) n.metadata[fx_node_key].clear();
  return out;
}

/// The results that the lines name: "%add_2 : [num_users=1] = …".
std::unordered_set<std::string> names_of_lines(const Graph& g) {
  std::unordered_set<std::string> names;
  for (const GraphNode& n : g.nodes)
    if (const auto it = n.metadata.find(fx_node_key); it != n.metadata.end() && it->second.starts_with('%'))
      names.insert(it->second.substr(1, it->second.find_first_of(" :") - 1));
  return names;
}

/// What the calls make that no line names: PyTorch's own ops may have it in registers, or keep as much of their own.
Bytes between_lines(const Tape& tape, const Graph& g) {
  const auto named = names_of_lines(g);
  Bytes all;
  for (const Call& c : tape.calls)
    for (std::size_t i = 0; i < c.outputs.size() && i < c.known_shapes.size(); ++i) {
      const auto& [dtype, sizes] = c.known_shapes[i];
      if (!c.outputs[i].valid() || named.count(tape.values[static_cast<std::size_t>(c.outputs[i].index)].name))
        continue;
      all += bytes_of(dtype, sizes);
    }
  return all;
}

}  // namespace

Tape lowered(const Model& model, const DimBinding& dims, const TrainingSetup& setup) {
  const auto lower_and_resize = [&](const Model& m) {
    return catching([&] { return unwrap(resize(unwrap(lower(m, dims, setup)), m, dims)); });
  };
  Result<Tape> tape = lower_and_resize(model);
  const bool told = !model.exported && !model.recorded && std::ranges::any_of(model.graphs.front().nodes, has_lines);
  if (!told || (tape && tape->graph)) return unwrap(std::move(tape));
  // What was asked for cannot be: the nodes alone would not know it better.
  if (!tape && tape.error().kind == ErrorKind::usage) return unwrap(std::move(tape));
  const bool training = setup.mode == Mode::training;
  std::optional<Failed> failed = training && tape ? backward_of(tape) : run(tape);
  if (!failed) return unwrap(std::move(tape));
  // The forward pass alone tells which call failed.
  if (training)
    if (auto forward = run(tape)) failed = std::move(forward);
  const Error why = failed->why;
  std::optional<Model> fewer = without_line_of(model, names_of(*failed, tape));
  Result<Tape> plain = tape;
  for (int i = 0; i < tries && fewer && failed; ++i) {
    plain = lower_and_resize(*fewer);
    failed = run(plain);
    if (failed) fewer = without_line_of(*fewer, names_of(*failed, plain));
  }
  // Lines may fit no better, which gradients show.
  if (!failed && training) failed = backward_of(plain);
  const std::string_view counted = failed ? "the nodes alone" : "the nodes of these calls";
  if (failed) plain = lower_and_resize(without_lines(model));
  if (!plain) return unwrap(std::move(tape));
  const Bytes off = between_lines(*plain, model.graphs.front());
  note(plain->notes,
       {"MP024",
        fmt::format("the lines of the program that stand at the file's nodes do not fit them ({}{}{}); {} are counted",
                    why.what, why.where.empty() ? "" : ": ", why.where, counted),
        Evidence::assumed,
        About::op,
        {},
        {},
        -1,
        1,
        Effect{off, off}});
  return unwrap(std::move(plain));
}

}  // namespace memplan
