// The table of ATen ops: one row per op, in rows/<family>.cpp. A row is a schema (argument names and defaults, as in
// PyTorch's native_functions.yaml) and a function that does on paper what the op does on CUDA: outputs, aliases,
// temporaries in their order, and the autograd node with what it saves and what its backward allocates. Every version
// of PyTorch has a table of its own (profile/profile.h), which a run reaches as run.profile.ops.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "estimators/runtime/torch/aten/formula.h"
#include "estimators/runtime/torch/aten/run.h"
#include "estimators/runtime/torch/aten/value.h"

namespace memplan {

using Kernel = ValueList (*)(Run&, Args&);

/// How sure memplan is about the memory of an op.
enum class Fidelity : std::uint8_t {
  exact,     ///< every allocation follows from a rule of PyTorch's source or a measurement
  modelled,  ///< outputs and saved tensors are right, temporaries of the kernel may be missing
};

/// What autocast does before the op runs (aten/src/ATen/autocast_mode.h).
enum class Autocast : std::uint8_t { none, lower, fp32, fp32_dtype_argument, promote };

/// Type of an element-wise result: that of the operands' promotion, the same with integers made floating, or bool.
enum class ResultType : std::uint8_t { same, floating, boolean };

struct Row {
  std::string name;                    ///< "aten::add.Tensor"
  std::vector<std::string> arguments;  ///< names in order
  std::vector<Value> defaults;         ///< parallel to `arguments`; None where there is no default
  Kernel kernel = nullptr;
  Fidelity fidelity = Fidelity::exact;
  Autocast autocast = Autocast::none;
  Derivatives derivatives;  ///< of rows whose backward is written as formulas; else empty
  int operands = 1;         ///< of element-wise rows: leading arguments that are tensors or numbers
  ResultType result = ResultType::same;
};

class OpTable {
 public:
  /// A new op. `schema`: "input, weight, bias=None, stride=1, padding=0". Defaults: numbers, True, False, None, [].
  /// The row stays where it is while the table lives.
  Row& add(std::string_view name, std::string_view schema, Kernel kernel, Fidelity fidelity = Fidelity::exact);
  /// Another row in the place of one that is there.
  Row& replace(std::string_view name, std::string_view schema, Kernel kernel, Fidelity fidelity = Fidelity::exact);
  /// Another name of a row's op; nothing where that name has a row.
  void also(std::string_view name, std::string_view row);
  const Row* find(std::string_view name) const;
  /// Failure(internal) where there is no such row.
  const Row& at(std::string_view name) const;
  const std::deque<Row>& rows() const { return rows_; }
  std::deque<Row>& rows() { return rows_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> index_;  ///< name -> place in rows_
  std::deque<Row> rows_;
};

/// Every row of rows/: what all versions of PyTorch start from.
OpTable base_ops();

/// Runs an op with positional and keyword arguments; autocast is applied as PyTorch's dispatcher does.
/// Failure(input) when the arguments do not fit; ops without a row are the caller's business (find() first).
ValueList call_op(Run& run, const Row& row, std::vector<Value> args,
                  const std::vector<std::pair<std::string, Value>>& kwargs);
/// The op of that name in the run's version of PyTorch, which must have it.
ValueList call_op(Run& run, std::string_view name, std::vector<Value> args);
const Row& row_named(const Run& run, std::string_view name);

/// Element-wise kernels for rows with `operands`, `result` and `derivatives`: out of place and in place.
ValueList run_elementwise(Run& run, Args& args);
ValueList run_elementwise_(Run& run, Args& args);
/// Numbers, lists and booleans of a call under their schema names, for formulas.
Bindings constants_of(const Row& row, const Args& args);

// One function per file of rows/.
void register_creation(OpTable&);
void register_factories(OpTable&);
void register_views(OpTable&);
void register_strided(OpTable&);
void register_arithmetic(OpTable&);
void register_elementwise(OpTable&);
void register_selection(OpTable&);
void register_reductions(OpTable&);
void register_statistics(OpTable&);
void register_quantiles(OpTable&);
void register_composites(OpTable&);
void register_linear_algebra(OpTable&);
void register_matrix_functions(OpTable&);
void register_matmul(OpTable&);
void register_products(OpTable&);
void register_convolution(OpTable&);
void register_normalization(OpTable&);
void register_pooling(OpTable&);
void register_spatial(OpTable&);
void register_softmax(OpTable&);
void register_attention(OpTable&);
void register_multihead_attention(OpTable&);
void register_rearrange(OpTable&);
void register_indexing(OpTable&);
void register_scatter(OpTable&);
void register_sorting(OpTable&);
void register_losses(OpTable&);
void register_margin_losses(OpTable&);
void register_spectral(OpTable&);
void register_short_time(OpTable&);
void register_triangular(OpTable&);
void register_recurrent(OpTable&);
void register_symbolic(OpTable&);
void register_quantized(OpTable&);
void register_other_names(OpTable&);  ///< after all others

}  // namespace memplan
