// The readings of a file that it leaves open.
//
// A plain file does not say where Python lets a tensor go, what an autograd.Function keeps, or how much scratch memory
// a library takes. memplan takes the most likely reading, the first value of each member below, and estimates the
// others as well to see how far they are apart: that is the range (estimate/range.h).
#pragma once

#include <cstdint>

namespace memplan {

/// How long names of the forward pass hold tensors.
enum class NameReading : std::uint8_t {
  as_told,  ///< as lines and classes say
  freed,    ///< not at all: every value goes with its last use
  held,     ///< names that the file does not show hold what they could: those of helpers, containers, unused results
};

/// Scratch memory of convolutions that no table has.
enum class WorkspaceReading : std::uint8_t { nearest, least, most };

/// What an autograd.Function of the model's own keeps for its backward pass.
enum class FunctionReading : std::uint8_t {
  ends,    ///< its inputs; the backward pass takes as much as the forward pass did
  alone,   ///< its inputs; the backward pass makes nothing but gradients
  pieces,  ///< what the ops of its forward pass would
  all,     ///< everything that its forward pass makes
};

/// Attention masks that transformers makes while it is traced.
enum class MaskReading : std::uint8_t {
  restored,  ///< those known to be absent from eager code are taken out
  traced,    ///< as the file has them
  eager,     ///< none but those that depend on what the batch holds besides padding
};

/// Ops of which a line of Python says that they write into their argument.
enum class InPlaceReading : std::uint8_t {
  as_told,   ///< those that a line or a class says; `x.mul_(g) if self.inplace else x * g` makes a new tensor
  never,     ///< none
  wherever,  ///< those under such a condition as well
};

struct Reading {
  NameReading names = NameReading::as_told;
  WorkspaceReading workspaces = WorkspaceReading::nearest;
  FunctionReading functions = FunctionReading::ends;
  MaskReading masks = MaskReading::restored;
  InPlaceReading in_place = InPlaceReading::as_told;
  bool casts = true;               ///< casts of known classes are put back
  bool unseen_casts = true;        ///< Exported::unseen_casts convert to fp32
  bool open_casts = false;         ///< norms and helpers of the model's own convert to the type of what they were given
  bool widened_losses = false;     ///< the model converts what its own losses are given to fp32
  std::uint32_t order = 0;         ///< of the weights, where the runtime loads them in another one in every process
  bool falling_addresses = false;  ///< the driver hands out segments from the top (torch/allocator/device_memory.h)
  bool numbers_on_host = false;    ///< tensors made from numbers are on the CPU where nothing says where they are
  bool own_adapters = true;        ///< beside low-rank adapters of the model's own all else is frozen
  bool evaluated_frozen = true;    ///< networks that stay in evaluation mode while the rest trains are not trained
  bool frozen_names = false;       ///< networks with names such as "teacher" are not trained
  bool pretrained = false;         ///< encoders of images, tables of words and positions are not trained
  bool own_checkpoints = false;    ///< stretches that the model checkpoints by itself run again in the backward pass
  bool training_draws = true;      ///< random numbers that the model draws besides dropout are drawn in inference, too
  friend bool operator==(const Reading&, const Reading&) = default;
};

}  // namespace memplan
