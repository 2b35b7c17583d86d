// Which values want a gradient, as calls come one after the other.
#pragma once

#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

class Differentiable {
 public:
  explicit Differentiable(const Tape& tape) : tape_(tape) {}

  /// The next call: its results want a gradient where something that they are made of does.
  void follow(const Call& call);
  bool wants(ValueId id) const;
  /// Whether one of the arguments is a result that wants a gradient, not a parameter.
  bool any_result_of(const std::vector<Arg>& args) const;

 private:
  bool is_made(ValueId id) const;

  const Tape& tape_;
  std::vector<bool> made_;  ///< by value, of results
};

}  // namespace memplan
