// The forward pass of a tape, with the modules that run under torch.utils.checkpoint (use_reentrant=False).
#pragma once

#include "memplan_torch/calls.h"
#include "memplan_torch/recorder.h"

namespace memplan::torch_side {

/// torch.autograd.graph.save_on_cpu(pin_memory=True) while it lives: what autograd saves is copied to pinned host
/// memory.
class SaveOnHost {
 public:
  explicit SaveOnHost(bool wanted);
  ~SaveOnHost();
  SaveOnHost(const SaveOnHost&) = delete;
  SaveOnHost& operator=(const SaveOnHost&) = delete;

 private:
  bool before_;
};

/// Runs every call in order. Calls of a checkpointed region save nothing but the region's inputs; the first gradient
/// that needs a tensor of the region runs it again.
void run_tape(const Tape& tape, Names& names, const CallSettings& settings, Recorder& recorder);

}  // namespace memplan::torch_side
