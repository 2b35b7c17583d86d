// Sizes of symbolic shapes as PyTorch writes them.
#pragma once

#include <string>
#include <string_view>

namespace memplan::torch_export {

/// "Mul(Integer(2), Symbol('s77', positive=True))" (sympy's srepr, since torch 2.6) as "(2*s77)"; text that is not of
/// that form ("2*s0 + 1", before) stays as it is. The result is what evaluate(Dim) of graph/dims.h reads;
/// it becomes empty where an unknown function occurs.
std::string infix(std::string_view text);

}  // namespace memplan::torch_export
