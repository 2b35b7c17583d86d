// Tensors made from numbers, where nothing says whether the GPU or the CPU makes them.
#pragma once

#include "estimators/tape/tape.h"

namespace memplan {

/// Whether a call gives numbers, which are on no device: sizes are values of the tape, too.
bool makes_numbers(const Call& call);

/// Indices are taken from the CPU as they are; other ops read on the GPU alone.
bool reads_from_host(const Call& call);

/// Whether a call makes a tensor from numbers alone, `torch.arange(n)`, and neither its line nor its class tells where.
/// An export runs on one device and writes down no other; a helper's lines are not in the file. (Classes of
/// transformers always name a device in what they call.) A recording tells all.
bool has_numbers_without_device(const Tape& tape);

/// Under Reading::numbers_on_host, such tensors, and what is made of them alone, stay on the CPU. The GPU gets a copy
/// of what other tensors meet there; tensors of one number are read where they are.
void leave_on_host(Tape& tape);

}  // namespace memplan
