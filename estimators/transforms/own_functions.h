// Applications of autograd functions of the model's own, each as one call.
#pragma once

#include "estimators/tape/tape.h"

namespace memplan {

/// Joins the calls of each application (Call::function), unless it is to be read as its pieces (Reading::functions):
/// its forward pass runs without gradients, and it saves its arguments. An export shows neither what such a function
/// saves nor its backward pass; most are written to save less than the ops of their forward pass would.
void join_own_functions(Tape& tape);

}  // namespace memplan
