#include "cli/report/codes.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "cli/report/state.h"

namespace memplan::cli {

namespace {

constexpr std::array warnings{
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
         "One way was counted; the text of the warning says which. Record the program (memplan.record in Python) to "
         "have "
         "the one that your data takes."},
    Code{"MP011", "", "The model switches autocast on by itself.",
         "memplan follows --precision there. memplan.record in Python has what the model does."},
    Code{"MP012", "", "The model checkpoints activations by itself, and they are counted as kept.",
         "The range goes down to what checkpointing may leave. memplan.record in Python has what the model does; "
         "--checkpoint says it by hand."},
    Code{"MP013", "", "A part of the program is counted by its inputs and outputs only.",
         "What it needs inside is missing, or a loop in it is counted once. memplan.record in Python has all of it."},
    Code{"MP014", "", "Data decide between branches; the one that makes more bytes is counted.",
         "A step that takes the other one needs less."},
    Code{"MP015", "", "Linears run in 8 bits as Transformer Engine is documented to do.",
         "That was not compared with its kernels."},
    Code{"MP016", "", "The model has an autograd.Function of its own, of which the file shows only the forward pass.",
         "What it keeps for the backward pass is not known; the range goes from its inputs and outputs to everything. "
         "memplan.record in Python has what it keeps."},
    Code{"MP020", "", "The model was exported with use_cache=False.",
         "Set model.config.use_cache = False in the training loop too: the cache of keys and values takes memory."},
    Code{"MP021", "", "The model calls torch.utils.checkpoint by itself, and a graph keeps no trace of it.",
         "Where modules can say it, the estimate has them as --checkpoint, and the warning says so. Otherwise add the "
         "--checkpoint that you mean, or record the program with memplan.record."},
    Code{
        "MP022", "", "The file fixes the batch or the sequence, and another size was asked for.",
        "Every number among the arguments of its calls that stands for the size was found and replaced, so the figures "
        "are those of an export with an open dimension."},
    Code{"MP023", "", "memplan exported the model itself, and says what it chose.",
         "--class, --task, --dtype, --no-labels and --gradient-checkpointing choose otherwise (docs/export.md)."},
    Code{"MP024", "",
         "The exporter's optimizer changed nodes so that the lines of the program noted there fit no more.",
         "The nodes alone are counted, and the range holds what they have beyond PyTorch's own ops. Export with "
         "optimize=False, or record the program with memplan.record."},
    Code{"MP025", "", "A module was exported, since it could not be run on the emulated GPU.",
         "The text of the warning says why. An export leaves out what an eager program does beside its ops, so the "
         "figure "
         "is weaker evidence than a recording."},
    Code{"MP026", "", "A function of the library computes this another way while it is exported.",
         "The file holds the exported way; what eager code takes instead is not known. Record the program with "
         "memplan.record."},
    Code{"MP040", "", "The allocator may not find room although enough bytes are free.",
         "--alloc-conf expandable_segments:True lets it grow segments in place."},
    Code{"MP050", "", "Checkpoints were planned for the budget of --checkpoint optimal.",
         "The text of the warning says which modules run twice, and what that costs."},
    Code{"MP070", "", "ONNX Runtime's optimizers may change nodes of this plain file.",
         "memplan folds constants, norms and identities and fuses x * sigmoid(x); other fusions move the figure within "
         "the "
         "range. Set optimized_model_filepath in a session on the target provider and give memplan the file that it "
         "writes."},
    Code{"MP060", "", "A recording has something to say about itself.",
         "Record the program again at the sizes and settings that are asked for."},
    Code{"MP061", "", "The size of a tensor depends on values that only a device computes.",
         "Its upper bound is counted."},
    Code{"MP062", "", "This setup did not run: it is worked out from the calls of a recorded forward pass.",
         "Record the program with this setup to have its own steps."},
    Code{"MP063", "", "The recorded calls ran in another precision than is asked for.",
         "Record the program in this precision: code that asks for it may take another way."},
    Code{"MP066", "", "The figures are those of a compiled program.",
         "The range holds a first run with empty caches. The same script under memplan observe shows its own."},
    Code{"MP065", "", "The file holds a recording that does not tell the setup that is asked for.",
         "The file's graph answers instead, with what an export leaves open. Record the module with this setup and "
         "attach "
         "that (memplan attach)."},
    Code{"MP064", "", "The recorded calls ran in training, and inference is asked for.",
         "Record the program with mode=\"inference\"."},
};

}  // namespace

std::span<const Code> codes() {
  static const std::vector<Code> all = [] {
    std::vector<Code> out(warnings.begin(), warnings.end());
    for (const GateRuleRow& r : gate_rules) out.push_back({r.code, r.name, r.text, r.next});
    return out;
  }();
  return all;
}

const Code* find_code(std::string_view name) {
  const std::span<const Code> table = codes();
  const auto it = std::find_if(table.begin(), table.end(), [&](const Code& c) {
    return std::equal(name.begin(), name.end(), c.code.begin(), c.code.end(),
                      [](unsigned char a, char b) { return std::toupper(a) == b; });
  });
  return it == table.end() ? nullptr : &*it;
}

}  // namespace memplan::cli
