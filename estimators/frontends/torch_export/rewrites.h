// What torch.export wrote down of the machine and precision it ran in, undone call by call.
#pragma once

#include <cstdint>
#include <optional>

#include "estimators/tape/tape.h"

namespace memplan {
struct TrainingSetup;
}

namespace memplan::torch_export {

/// Element types of a call's first input and output in the file.
struct Types {
  std::optional<DType> input, output;
};

enum class Fate : std::uint8_t {
  keep,
  drop,        ///< does nothing in this setup
  pass_input,  ///< returns its first argument
};

/// Casts that were none in the exported precision (`x.to(device)`, `x.to(y.dtype)`) become what the program would do in
/// another one; flags of the exporting machine (cuDNN absent) are set as on CUDA.
Fate rewrite_exported(Call& call, const Types& types, const TrainingSetup& setup, const Tape& tape);

/// A batch norm or dropout that runs as in inference.
bool is_frozen(const Call& call);

}  // namespace memplan::torch_export
