// A file that is read as a whole.
#pragma once

#include <string>

#include "estimators/base/error.h"

namespace memplan {

/// All bytes of a file. Failure of `kind` where it cannot be opened or read to its end, with `hint`.
std::string text_of_file(const std::string& path, ErrorKind kind, const std::string& hint = {});

}  // namespace memplan
