// A graph whose open dimensions have numbers: what a runtime runs that takes the file's nodes as they are.
#pragma once

#include <string>
#include <vector>

#include "estimators/graph/dims.h"
#include "estimators/graph/graph.h"

namespace memplan {

struct BoundGraph {
  Graph graph;
  Symbols symbols;
  std::int64_t opset = 0, ir = 0;
  std::string rewritten_by;          ///< Model::rewritten_by
  std::vector<std::string> domains;  ///< Model::domains
};

}  // namespace memplan
