// The table of ATen ops: one row per op, in rows/<family>.cpp. A row is a schema (argument names and defaults, as in
// PyTorch's native_functions.yaml) and a function that does on paper what the op does on CUDA: outputs, aliases,
// temporaries in their order, and the autograd node with what it saves and what its backward allocates.
#pragma once

#include <map>
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

class Registry {
 public:
  /// `schema`: "input, weight, bias=None, stride=1, padding=0". Defaults: numbers, True, False, None, [].
  Row& add(std::string_view name, std::string_view schema, Kernel kernel, Fidelity fidelity = Fidelity::exact);
  const Row* find(std::string_view name) const;
  const std::vector<Row*>& rows() const { return order_; }

 private:
  std::unordered_map<std::string_view, Row*> rows_;
  std::vector<Row*> order_;
};

/// The table, built on first use.
const Registry& registry();

/// Runs one op by name with positional and keyword arguments; autocast is applied as PyTorch's dispatcher does.
/// Failure(input) when the arguments do not fit; ops without a row are the caller's business (find() first).
ValueList call_op(Run& run, const Row& row, std::vector<Value> args,
                  const std::vector<std::pair<std::string, Value>>& kwargs);

/// Element-wise kernels for rows with `operands`, `result` and `derivatives`: out of place and in place.
ValueList run_elementwise(Run& run, Args& args);
ValueList run_elementwise_(Run& run, Args& args);
/// Numbers, lists and booleans of a call under their schema names, for formulas.
Bindings constants_of(const Row& row, const Args& args);

// One function per file of rows/.
void register_creation(Registry&);
void register_views(Registry&);
void register_arithmetic(Registry&);
void register_elementwise(Registry&);
void register_selection(Registry&);
void register_reductions(Registry&);
void register_matmul(Registry&);
void register_products(Registry&);
void register_convolution(Registry&);
void register_normalization(Registry&);
void register_pooling(Registry&);
void register_spatial(Registry&);
void register_softmax(Registry&);
void register_attention(Registry&);
void register_rearrange(Registry&);
void register_indexing(Registry&);
void register_scatter(Registry&);
void register_sorting(Registry&);
void register_losses(Registry&);
void register_spectral(Registry&);
void register_recurrent(Registry&);
void register_symbolic(Registry&);
void register_quantized(Registry&);

}  // namespace memplan
