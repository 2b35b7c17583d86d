// Backward formulas in the notation of PyTorch's derivatives.yaml and FunctionsManual.cpp, evaluated on paper.
//
//   "grad * (1 - self.pow(2)).rsqrt()"
//   "denom = self * self + other * other; {grad * other / denom, grad * -self / denom}"
//
// What matters is when memory comes and goes, so the rules of C++ (as GCC compiles PyTorch) are kept: operands and
// arguments are evaluated right to left, an object before its method's arguments, a temporary lives to the end of its
// statement and temporaries die in the reverse order of their making; named values die with the formula.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/runtime/torch/aten/run.h"
#include "estimators/runtime/torch/aten/value.h"

namespace memplan {

/// Values by name: the saved tensors, "grad", and the call's numbers, lists and booleans. Names are views: of literals,
/// of the table of ops or of the formula, all of which outlive the bindings.
class Bindings {
 public:
  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;
  void erase(std::string_view name);

 private:
  std::vector<std::pair<std::string_view, Value>> entries_;
};

class Formula {
 public:
  /// Failure(internal) where the text is malformed.
  explicit Formula(std::string_view text);
  ~Formula();
  Formula(Formula&&) noexcept;
  Formula& operator=(Formula&&) noexcept;

  /// The results: one, or those of a final "{…}", of which entries that `wanted` refuses are skipped and stay None.
  /// Names that it defines are bound while it is evaluated. Grad mode must be off. Failure(internal) where a name or
  /// function is unknown.
  ValueList evaluate(Run& run, Bindings& bindings, const std::function<bool(int)>& wanted) const;

  /// Names that the formula reads and does not define itself, each once, in alphabetical order.
  const std::vector<std::string>& names() const { return names_; }

  struct Node;  ///< of the parsed expression

 private:
  std::vector<std::unique_ptr<Node>> statements_;
  std::vector<std::string> names_;
};

/// The gradients of one op: a formula for each differentiable input, or one formula for several.
class Derivatives {
 public:
  Derivatives() = default;
  /// "self: grad * other | other: grad * self", "self, other: …; {…, …}". An input's name is that of the schema.
  explicit Derivatives(std::string_view text);

  /// Records the node of an op with these derivatives. `inputs` are its tensors by schema name (null allowed),
  /// `outputs` its results ("result", or "result0", "result1" … where there are several); `constants` the numbers and
  /// lists that formulas read. Inputs and outputs that a formula reads are kept, and an input that only the formula of
  /// another input reads is kept only if that one wants a gradient (torchgen's gen_variable_type). "other_meta" in a
  /// formula stands for the input's shape and type, which are kept without its memory. An empty
  /// `differentiable` output counts too. Returns null where no gradient is wanted.
  Node* record(Run& run, const std::vector<std::pair<std::string_view, Tensor>>& inputs, const TensorList& outputs,
               Bindings constants = {}) const;
  /// The same for an in-place op on `inputs[0]`, whose former value is cloned where a formula reads it.
  Node* record_in_place(Run& run, const std::vector<std::pair<std::string_view, Tensor>>& inputs,
                        Bindings constants = {}) const;

  bool empty() const { return !parsed_; }

  /// Whether some formula reads `name`.
  bool reads(std::string_view name) const;
  /// Every name that some formula reads, in alphabetical order.
  std::vector<std::string> names() const;

 private:
  struct Entry {
    std::vector<std::string> inputs;
    Formula formula;
  };
  struct Formulas {
    std::vector<Entry> entries;
    std::vector<std::string> keep_order;  ///< names that formulas read, in the order in which they are kept
  };
  /// Parsed when it is first asked for: a model uses few of the rows.
  struct Parsed;
  static Formulas parse(std::string_view text);
  const Formulas* formulas() const;
  Node* make(Run& run, const std::vector<std::pair<std::string_view, Tensor>>& inputs, const TensorList& outputs,
             bool in_place, Bindings constants) const;
  std::shared_ptr<Parsed> parsed_;
};

}  // namespace memplan
