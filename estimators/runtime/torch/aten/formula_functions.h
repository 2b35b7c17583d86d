// What the operators and functions of a backward formula do on paper.
#pragma once

#include <string_view>

#include "estimators/runtime/torch/aten/run.h"
#include "estimators/runtime/torch/aten/value.h"

namespace memplan {

Value formula_negative(Run& run, const Value& a);
/// "+", "-", "*", "/", comparisons and "&", on tensors and numbers.
Value formula_operation(Run& run, std::string_view op, const Value& a, const Value& b);
/// A function or method, the object first: a helper of FunctionsManual.cpp, or the row "aten::<name>" (with the
/// overload that fits the arguments). Names ending in "_" work in place. Failure(internal) where there is neither.
Value formula_call(Run& run, std::string_view name, ValueList& args);

}  // namespace memplan
