// Networks that a model applies both to what another part of it has made and to what it was given.
#pragma once

#include <set>
#include <string>

#include "estimators/tape/tape.h"

namespace memplan {

/// Paths, each with a dot behind it, of the model's own parts with a module of which one call reads what trained
/// parameters of other parts have gone into, and another call reads none: `self.vgg(self.net(x))` and `self.vgg(goal)`.
/// Such a part judges the other one, and often is not trained with it.
std::set<std::string> judging_networks(const Tape& tape);

}  // namespace memplan
