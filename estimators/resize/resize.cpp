// open_fixed and resize of pipeline.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "estimators/base/unwrap.h"
#include "estimators/graph/dims.h"
#include "estimators/pipeline.h"
#include "estimators/resize/follow.h"
#include "estimators/tape/positions.h"

namespace memplan {

namespace {

using resizing::Followed;
using resizing::Origin;

/// A kind of size that a file may fix.
struct Kind {
  const char* name;  ///< of the dimension that is opened, and in the graph's metadata
  bool batch;
};
constexpr std::array kinds{Kind{"batch", true}, Kind{"sequence", false}};

GraphValue& input_of(Graph& g, std::size_t i) { return g.values[static_cast<std::size_t>(g.inputs[i])]; }

bool is_per_token(const GraphValue& v) { return v.shape && v.shape->size() == 2 && v.dtype && is_integral(*v.dtype); }

/// The axis of an input that may have the size: the first one of every input, the second one of token ids and labels.
int axis_of(const GraphValue& v, const Kind& kind) {
  if (!v.shape || v.shape->empty()) return -1;
  if (kind.batch) return 0;
  return is_per_token(v) ? 1 : -1;
}

/// What the first input with such an axis has there.
std::optional<std::int64_t> fixed_size(Graph& g, const Kind& kind) {
  for (std::size_t i = 0; i < g.inputs.size(); ++i) {
    const GraphValue& v = input_of(g, i);
    if (const int axis = axis_of(v, kind); axis >= 0) {
      const Dim& d = (*v.shape)[static_cast<std::size_t>(axis)];
      return d.open() ? std::nullopt : std::optional(d.size);
    }
  }
  return std::nullopt;
}

bool has_open_dims(const Graph& g) {
  return std::any_of(g.inputs.begin(), g.inputs.end(), [&](GraphValueId id) {
    const auto& shape = g.values[static_cast<std::size_t>(id)].shape;
    return !shape || std::any_of(shape->begin(), shape->end(), [](const Dim& d) { return d.open(); });
  });
}

/// Inputs of the graph and of the tape in the same order; none where they do not match.
bool same_inputs(const Graph& g, const Tape& tape) {
  if (g.inputs.size() != tape.inputs.size()) return false;
  for (std::size_t i = 0; i < g.inputs.size(); ++i) {
    const auto& shape = g.values[static_cast<std::size_t>(g.inputs[i])].shape;
    if (!shape || shape->size() != tape.values[static_cast<std::size_t>(tape.inputs[i].index)].sizes.size())
      return false;
  }
  return true;
}

/// Opens one kind of size where a trial with another size goes through the whole tape.
void open_kind(Model& model, const Tape& tape, const Kind& kind) {
  Graph& g = model.graphs.front();
  const auto size = fixed_size(g, kind);
  if (!size || *size < 1) return;
  Origin origin{{}, *size, kind.batch};
  for (std::size_t i = 0; i < g.inputs.size(); ++i) {
    const GraphValue& v = input_of(g, i);
    const int axis = axis_of(v, kind);
    if (axis >= 0 && (*v.shape)[static_cast<std::size_t>(axis)].size == *size)
      origin.dims.emplace_back(tape.inputs[i], axis);
  }
  const Result<Followed> trial = catching([&] { return resizing::follow(tape, origin, *size); });
  if (!trial) {
    g.metadata[fmt::format("memplan.unfollowed.{}", kind.name)] = trial.error().what;
    return;
  }
  origin.dims.insert(origin.dims.end(), trial->more.begin(), trial->more.end());
  for (const auto& [id, axis] : origin.dims) {
    const auto at = std::find(tape.inputs.begin(), tape.inputs.end(), id) - tape.inputs.begin();
    (*input_of(g, static_cast<std::size_t>(at)).shape)[static_cast<std::size_t>(axis)] = {-1, kind.name};
  }
  g.metadata[fmt::format("memplan.fixed.{}", kind.name)] = std::to_string(*size);
}

Tape resized(Tape tape, const Graph& g, const Kind& kind, std::int64_t from, std::int64_t to) {
  Origin origin{{}, from, kind.batch};
  for (std::size_t i = 0; i < g.inputs.size(); ++i) {
    const auto& shape = *g.values[static_cast<std::size_t>(g.inputs[i])].shape;
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
      if (shape[axis].symbol == kind.name) origin.dims.emplace_back(tape.inputs[i], static_cast<int>(axis));
  }
  Followed followed = resizing::follow(tape, origin, to);
  note(followed.tape.notes,
       {"MP022",
        fmt::format("the file fixes the {} at {}; it was followed through the calls to {} ({} numbers replaced)",
                    kind.name, from, to, followed.replaced),
        Evidence::proven_by_file, About::shape});
  if (!followed.folded.empty())
    note(followed.tape.notes, {{},
                               fmt::format("tensors of the file that its exporter computed for this {}, such as {}",
                                           kind.name, followed.folded.front()),
                               Evidence::told_by_pattern,
                               About::op});
  if (followed.open.count > 0) {
    Fact either{{},
                fmt::format("a number that could be the {} or a constant is taken as the {}: {}", kind.name, kind.name,
                            followed.first_open),
                Evidence::assumed,
                About::op};
    either.off = Effect{followed.open, followed.open};
    note(followed.tape.notes, either);
  }
  return std::move(followed.tape);
}

}  // namespace

Model open_fixed(Model model) {
  if (model.graphs.empty() || model.recorded) return model;
  Graph& g = model.graphs.front();
  if (g.inputs.empty() || has_open_dims(g)) return model;
  // A file that cannot be lowered says so when it is estimated.
  const Result<Tape> tape = lower(model, DimBinding{}, TrainingSetup{});
  if (!tape || !same_inputs(g, *tape)) return model;
  for (const Kind& kind : kinds) open_kind(model, *tape, kind);
  model.shared = {};  // was made of the sizes that are open now
  return model;
}

Result<Tape> resize(Tape tape, const Model& model, const DimBinding& dims) {
  return catching([&] {
    const Graph& g = model.graphs.front();
    const Symbols fixed = fixed_sizes(g);
    for (const Kind& kind : kinds) {
      const auto from = fixed.find(kind.name), to = dims.sizes.find(kind.name);
      if (from != fixed.end() && to != dims.sizes.end() && from->second != to->second)
        tape = resized(std::move(tape), g, kind, from->second, to->second);
    }
    if (!fixed.empty()) check_positions(tape);
    return std::move(tape);
  });
}

}  // namespace memplan
