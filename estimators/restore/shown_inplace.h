// What the calls of a functional program show of activations that may write into their argument.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

/// The nearest module around a scope that is no plain container; -1 where there is none.
std::int32_t owner_of(const Tape& tape, std::int32_t scope);

/// Of activations with a module of their own. In place: `x + self.block(x)` reads what the first activation of an
/// nn.Sequential made, though that is not what the Sequential returns; so it is `x` itself that was changed. A new
/// tensor: what stood there before is read later. Where neither is seen, the others tell: whoever writes
/// nn.ReLU(inplace=True) once does so throughout, or in that class where another one makes a new tensor.
class ShownInplace {
 public:
  /// `candidates`: the calls of such activations, ascending.
  ShownInplace(const Tape& tape, const std::vector<std::size_t>& candidates);

  bool in_place(std::size_t call) const { return in_place_.count(call) > 0; }
  bool makes_new(std::size_t call) const { return makes_new_.count(call) > 0; }

 private:
  std::set<std::size_t> in_place_, makes_new_;
};

}  // namespace memplan
