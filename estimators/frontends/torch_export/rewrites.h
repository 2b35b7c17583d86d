// What torch.export wrote down of the machine and precision it ran in, undone call by call.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

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
  drop,        ///< does nothing in this setup: its result is its first argument
  pass_input,  ///< returns its first argument
};

class ArchiveCasts;

/// Casts that were none in the exported precision (`x.to(device)`, `x.to(y.dtype)`) become what the program would do in
/// another one (`function`: the method that made the call, where the file says); flags of the exporting machine (cuDNN
/// absent) are set as on CUDA.
Fate rewrite_exported(Call& call, const Types& types, const TrainingSetup& setup, const Tape& tape,
                      std::string_view function, ArchiveCasts& casts);

/// torch.tensor([1, 2]) in a forward pass is a constant of the file, and made anew in each pass: a call that lifts one
/// becomes one that makes it, and the constant is no part of the module. One number stays on the CPU.
void make_lifted(Call& call, Tape& tape);

/// A batch norm or dropout that runs as in inference.
bool is_frozen(const Call& call);

/// Arguments behind the `*` of schemas in native_functions.yaml. Tracing gives all others by position.
bool is_keyword_only(std::string_view name);

}  // namespace memplan::torch_export
