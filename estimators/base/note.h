// What a reader of a result should know about it.
#pragma once

#include <string>

namespace memplan {

struct Note {
  std::string code;  ///< stable, "MP010 unknown-op"
  std::string text;
};

}  // namespace memplan
