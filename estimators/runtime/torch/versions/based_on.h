// How the file of a version begins.
#pragma once

#include <string>
#include <utility>

#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

/// A version that does everything as `neighbour` does, until its file says otherwise: what was said of the neighbour's
/// changes and recordings is not said of it.
inline TorchProfile based_on(TorchProfile neighbour, std::string version) {
  neighbour.version = std::move(version);
  neighbour.compared = neighbour.environments_compared = false;
  neighbour.changes = {};
  return neighbour;
}

}  // namespace memplan
