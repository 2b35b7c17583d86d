// What an open dimension is in one setup.
#pragma once

#include <cstdint>
#include <string>

namespace memplan {

/// An open dimension of the file and the size that it has in this tape's setup.
struct BoundDim {
  std::string name;
  std::int64_t size = 0;  ///< of the whole batch, whatever share of it a rank takes
  bool assumed = false;   ///< nobody gave it: an open batch is 1, a sequence as long as the model's position table
  bool of_file = false;   ///< nobody gave it, and the file has this size
};

}  // namespace memplan
