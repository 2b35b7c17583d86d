// The two Adafactors: torch.optim's and the one of transformers, which Trainer(optim="adafactor") takes.
#pragma once

#include "estimators/runtime/torch/step/optimizer.h"

namespace memplan {

/// torch.optim.Adafactor (torch/optim/_adafactor.py).
std::unique_ptr<Optimizer> make_adafactor(Run& run, const OptimizerSetup& setup, const TensorList& parameters);

/// transformers.Adafactor (transformers/optimization.py of 4.51 to 5.23), with the settings that Trainer gives it: no
/// scale_parameter, no first moment.
std::unique_ptr<Optimizer> make_transformers_adafactor(Run& run, const OptimizerSetup& setup,
                                                       const TensorList& parameters);

}  // namespace memplan
