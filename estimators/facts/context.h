// What a process holds on a card beside PyTorch's segments: CUDA's context, kernels and libraries.
//
// The figures are those of runs that people published (data/context/rows.csv), nearly all of them PyTorch's own
// out-of-memory messages: what the process has in use, less what PyTorch reserved. The driver backs the stacks and
// local memory of every thread that can be resident, so cards take much the same per such thread: 1.9 to 3.7 KiB on 36
// of the 37 runs that serve, from a laptop with 24 multiprocessors to an RTX 5090 with 170.
#pragma once

#include <string>

#include "estimators/facts/device.h"

namespace memplan {

struct ContextFigure {
  Bytes usual;        ///< median of the runs on the card where there are three, else on cards of its compute capability
  Bytes least, most;  ///< nineteen of twenty of all runs lie between, and each run on the card
  std::string source;  ///< which runs, for "(…)" behind the figure
};

/// Runs on other cards are scaled by the threads that can be resident. One GPU, Linux, kernels loaded when they are
/// first used (CUDA_MODULE_LOADING=LAZY, PyTorch's default since 1.13).
ContextFigure published_context(const Device& device);

}  // namespace memplan
