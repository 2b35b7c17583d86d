// A graph whose open dimensions have numbers: what a runtime runs that takes the file's nodes as they are.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "estimators/graph/dims.h"
#include "estimators/graph/graph.h"

namespace memplan {

/// What follows from a value and a name alone, worked out when it is first asked for and shared by all who ask again:
/// many schedules are made of one graph, and none of them changes it. A copy works it out again.
template <class T>
class WorkedOut {
 public:
  WorkedOut() = default;
  WorkedOut(const WorkedOut&) {}
  WorkedOut& operator=(const WorkedOut&) = delete;

  /// `make` gives a std::shared_ptr<const T>; what it throws is thrown, and the next one tries again.
  template <class Make>
  const T& get(const std::string& name, const Make& make) const {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const T>& made = made_[name];
    if (!made) made = make();
    return *made;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const T>> made_;
};

namespace ort {
struct Prepared;
}

struct BoundGraph {
  Graph graph;
  Symbols symbols;
  std::int64_t opset = 0, ir = 0;
  std::string rewritten_by;             ///< Model::rewritten_by
  std::vector<std::string> domains;     ///< Model::domains
  bool flat = false;                    ///< bodies of If, Loop and Scan stand in the place of these nodes
  WorkedOut<ort::Prepared> prepared{};  ///< runtime/ort/prepared.h
  /// Likewise, of what goes for any sizes.
  std::shared_ptr<WorkedOut<ort::Arranged>> arranged = std::make_shared<WorkedOut<ort::Arranged>>();
};

}  // namespace memplan
