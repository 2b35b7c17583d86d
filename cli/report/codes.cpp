#include "cli/report/codes.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace memplan::cli {

namespace {

constexpr std::array table{
    Code{"MP001", "", "The reader of the file has something to say about the file itself.",
         "The text of the warning says what; the figure stands for what could be read."},
    Code{"MP002", "", "The batch dimension is open and was chosen for you.",
         "The estimate is of one sample, or of the batch that was recorded. Say yours with --batch N."},
    Code{"MP003", "", "The sequence dimension is open and was taken from the model's table of positions.",
         "The estimate is of the longest sequence that the model can take. Say yours with --seq N."},
    Code{"MP004", "", "Parameters of the module are not in the file, because no node reads them.",
         "PyTorch keeps them in GPU memory all the same, so the estimate is low by their bytes. Export a .pt2 archive, "
         "which lists them."},
    Code{"MP005", "", "Two names stand for one parameter, which is counted once.",
         "That is right for tied weights, such as an embedding and the output layer. If your program keeps two copies, "
         "the estimate is low by one of them."},
    Code{"MP006", "", "Stored tensors that no node reads are counted as parameters without a gradient.",
         "Training may give them gradients and optimizer state, or the program may not have them at all."},
    Code{"MP007", "", "The file gives no shape for an input, which is taken as a scalar.",
         "What is computed from it may be too small. Export the model again with shapes."},
    Code{"MP008", "", "The file was exported in evaluation mode, and training is estimated.",
         "Dropout is gone and batch norms may be folded, so a training step may need more than this. Export "
         "model.train()."},
    Code{"MP009", "", "Which branch runs, or how often a loop turns, depends on data.",
         "One way was counted; the text of the warning says which. Record the program (memplan.export in Python) to "
         "have "
         "the one that your data takes."},
    Code{"MP101", "no-fit", "The step does not fit the card.",
         "memplan suggest lists what to change, fastest first, with settings to paste."},
    Code{"MP102", "tight",
         "The step fits, but not with the margin that is wanted, or only because the allocator empties its cache.",
         "It may run, slowly, and fail when another process uses the card. Lower --margin to accept it, or ask memplan "
         "suggest."},
    Code{"MP103", "unknown", "Whether the step fits depends on something that is not modelled.",
         "memplan ops MODEL --unsupported names the ops. memplan.export in Python records the program, which leaves no "
         "op "
         "unknown."},
    Code{"MP104", "unknown-op", "The model has ops that are not modelled, only bounded.",
         "The range is wider by what they may need. memplan ops MODEL --unsupported names them."},
    Code{"MP110", "over-limit", "The peak is over the limit of the target.",
         "The upper end of the range counts. Raise `limit` on purpose, or take the change that the gate proposes."},
    Code{"MP111", "near-limit", "The peak is over the warning level of the target.",
         "The upper end of the range is over `warn`, and below `limit`."},
    Code{"MP120", "regression", "The peak grew by more than max_increase over the baseline.",
         "memplan diff says which part grew. Where the growth is meant, memplan baseline update keeps it."},
    Code{"MP121", "increase", "The peak grew by more than warn_increase over the baseline.",
         "memplan diff says which part grew."},
    Code{"MP122", "ratchet", "The peak fell, and the baseline was not updated to keep it there.",
         "memplan baseline update writes the lower peak."},
    Code{"MP190", "error", "The target could not be checked.",
         "The message says what stands in the way; a gate counts it as failed."},
};

}  // namespace

std::span<const Code> codes() { return table; }

const Code* find_code(std::string_view name) {
  const auto it = std::find_if(table.begin(), table.end(), [&](const Code& c) {
    return std::equal(name.begin(), name.end(), c.code.begin(), c.code.end(),
                      [](unsigned char a, char b) { return std::toupper(a) == b; });
  });
  return it == table.end() ? nullptr : &*it;
}

}  // namespace memplan::cli
