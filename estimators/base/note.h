// An assumption or a warning that came up on the way to an estimate.
#pragma once

#include <string>

namespace memplan {

struct Note {
  std::string code;  ///< stable, "MP010 unknown-op"
  std::string text;
};

}  // namespace memplan
