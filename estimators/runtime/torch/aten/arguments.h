// Arguments of a call, as a tape or a script has them, as values of ops on paper.
#pragma once

#include <string>
#include <variant>

#include "estimators/runtime/torch/aten/value.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// `at` says what a ValueId stands for; everything else is a constant.
template <class ValueAt>
Value value_of(const Arg& arg, const ValueAt& at) {
  struct Visitor {
    const ValueAt& at;
    Value operator()(Arg::None) const { return {}; }
    Value operator()(ValueId id) const { return at(id); }
    Value operator()(std::int64_t n) const { return n; }
    Value operator()(double d) const { return d; }
    Value operator()(bool b) const { return b; }
    Value operator()(const std::string& s) const { return s; }
    Value operator()(DType d) const { return d; }
    Value operator()(const Arg::List& list) const {
      ValueList values;
      values.reserve(list.size());
      for (const Arg& a : list) values.push_back(std::visit(*this, a.value));
      return values;
    }
  };
  return std::visit(Visitor{at}, arg.value);
}

}  // namespace memplan
