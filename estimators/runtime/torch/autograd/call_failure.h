// A call of a tape that failed when it ran.
#pragma once

#include <cstddef>
#include <utility>

#include "estimators/base/error.h"

namespace memplan {

class CallFailure : public Failure {
 public:
  CallFailure(Error error, std::size_t call) : Failure(std::move(error)), call(call) {}
  std::size_t call;  ///< its index in Tape::calls
};

}  // namespace memplan
