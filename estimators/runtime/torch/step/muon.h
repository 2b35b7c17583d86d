// torch.optim.Muon for the hidden matrices, torch.optim.AdamW for everything else, as Muon's authors ask for.
#pragma once

#include "estimators/runtime/torch/step/optimizer.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// Values of the parameters that Muon takes: matrices that are no weight of an embedding and not of the last Linear.
std::vector<ValueId> hidden_matrices(const Tape& tape);

/// Both optimizers, stepped one after the other. `setup` is AdamW's.
std::unique_ptr<Optimizer> make_muon(Run& run, const OptimizerSetup& setup, const TensorList& hidden,
                                     const TensorList& others);

}  // namespace memplan
