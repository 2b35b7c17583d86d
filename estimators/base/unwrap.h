// From the world of Results into that of exceptions, for functions whose callers catch once (catching() in error.h).
#pragma once

#include <utility>

#include "estimators/base/error.h"

namespace memplan {

/// The value; throws the Failure of a result that has none.
template <class T>
T unwrap(Result<T> result) {
  if (!result) throw Failure(result.error());
  return std::move(result.value());
}

}  // namespace memplan
