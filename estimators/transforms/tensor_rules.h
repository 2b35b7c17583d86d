// What tensor parallelism knows of single ops: how the result of a call lies on the ranks when its operands are cut.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "estimators/runtime/torch/aten/tensor.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// How a value lies on the ranks: whole, or cut along `dim`. Values cut by heads or features remember the layers that
/// cut them; values cut by the sequence can be gathered where somebody needs them whole.
struct Layout {
  int dim = -1;
  bool sequence = false;
  std::set<std::size_t> origins;  ///< calls
  bool whole() const { return dim < 0; }
};

/// Where one framework's tensor-parallel layers differ from another's.
struct TensorStyle {
  /// Activations begin with the sequence: tokens stay apart where batch and sequence become one dimension.
  bool sequence_first = false;
  bool reduces_in_place = false;  ///< all-reduces write into their input
  bool own_rows_of_embedding =
      false;                    ///< the token embedding's gradient has the rank's rows only, not the whole vocabulary's
  bool gathers_inside = false;  ///< the layer itself gathers the sequence, and again in its backward pass (training)
  bool cut_logits = false;      ///< the loss takes the logits of the rank's part of the vocabulary
};
inline constexpr TensorStyle dtensor_style{};
inline constexpr TensorStyle megatron_style{true, true, true, true, true};

/// A call some of whose operands are cut, as its rule sees it.
struct CutCall {
  Call& call;  ///< sizes among its arguments become those of one rank
  const std::vector<TapeValue>& values;
  const std::vector<std::optional<Dims>>& shapes;  ///< of the whole values, whatever a rank holds of them
  const std::vector<Layout>& layouts;
  const TensorStyle& style;
  std::int64_t ranks = 1;
  std::string place;  ///< path of the module, for errors

  const Dims& shape(ValueId id) const;
  const Layout& layout(ValueId id) const { return layouts[static_cast<std::size_t>(id.index)]; }
  bool is_parameter(ValueId id) const;
  ValueId argument(std::size_t i) const;  ///< invalid where it is no value
  std::int64_t number(std::size_t i, std::int64_t otherwise) const;
  /// Layers behind all operands.
  Layout merged() const;
};

/// The call works on its share: how its results lie, and parameters that are cut with them, by dimension.
struct Shared {
  Layout results;
  std::vector<std::pair<ValueId, int>> parameters;
};
/// The call needs its operands whole: those cut by the sequence are gathered.
struct NeedsWhole {};
/// Something is needed whole that layers have cut: these layers must stay whole.
struct Conflict {
  std::set<std::size_t> origins;
};
using CutOutcome = std::variant<Shared, NeedsWhole, Conflict>;

/// The rule of the call's op; ops without one need their operands whole. Failure(usage) where the ranks do not divide
/// the heads of a layer that has to be cut.
CutOutcome cut_outcome(CutCall& call);

/// "add" of "aten::add.Tensor".
std::string_view base_name(std::string_view op);

/// Failure(usage) where the ranks do not divide `size`.
void require_divisible(std::int64_t size, const char* what, std::int64_t ranks, const std::string& place);

/// The heads that attention works on must be divisible, whatever else could stay whole. Failure(usage) names the
/// module.
void check_heads(const Tape& tape, const std::vector<std::optional<Dims>>& shapes, std::int64_t ranks);

}  // namespace memplan
