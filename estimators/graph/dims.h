// Open dimensions: which there are, and which number each gets from the setup.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/base/evidence.h"
#include "estimators/graph/graph.h"
#include "estimators/setup/bound_dim.h"

namespace memplan {

struct TrainingSetup;

using Symbols = std::map<std::string, std::int64_t, std::less<>>;

/// An open dimension of a user input.
struct OpenDim {
  std::string name;   ///< "seq"; "input_ids_dim1" where the file gives none
  std::string where;  ///< "input_ids[1]"
  bool batch = false, sequence = false;
  std::string like;   ///< an earlier dimension that it has the size of where it gets none itself; mostly empty
  std::string shown;  ///< how reports call it: "batch" or "seq" where the exporter told that, else its name
};

/// In the order of the inputs, each name once. Batch and sequence are told by name, and where no name tells, by
/// place: the first dimension of the first input, the second one of integer inputs.
std::vector<OpenDim> open_dims(const Graph& graph);

/// What the file fixes the batch to: the first dimension that all inputs with dimensions share. None where it is open.
std::optional<std::int64_t> fixed_batch(const Graph& graph);

/// Dimensions that the file fixes and open_fixed (pipeline.h) opened, with the sizes that the file's calls are for.
Symbols fixed_sizes(const Graph& graph);

/// What the open dimensions are in one setup.
struct DimBinding {
  Symbols sizes;                ///< what shapes are evaluated with
  std::vector<BoundDim> bound;  ///< the same for the report, in the order of open_dims
  Notes notes;
};

/// Gives every open dimension a number: by name from `setup.dims`, then `setup.batch` and `setup.sequence`; an open
/// batch that nobody binds is 1, with note MP002. Failure(input) lists what stays open with a command to paste;
/// Failure(usage) for names that the model does not have and for a batch that contradicts the file.
DimBinding bind_dims(const Model& model, const TrainingSetup& setup);

/// A number, a bound symbol, or an expression of them with + - * / // % ( ) min max floor ceil. None when something
/// in it is unbound or it is not an integer.
std::optional<std::int64_t> evaluate(const Dim& dim, const Symbols& symbols);

/// All dimensions of a value; none when its shape is unknown or one stays open.
std::optional<std::vector<std::int64_t>> evaluate(const GraphValue& value, const Symbols& symbols);

/// The name under which a dimension of an input is bound: its symbol, else "<input>_dim<axis>".
std::string dim_name(const GraphValue& value, std::size_t axis);

}  // namespace memplan
