// An input of the model that the user describes, for files that do not.
#pragma once

#include <string>
#include <vector>

#include "estimators/base/dtype.h"
#include "estimators/graph/graph.h"

namespace memplan {

struct GivenInput {
  std::string name;  ///< empty: the next one by position
  DType dtype = DType::float32;
  std::vector<Dim> sizes;  ///< numbers, or names to be bound ("batch")
};

}  // namespace memplan
