// Passes that put back what exporters lose; the table of restore.h says in which order.
#pragma once

#include <cstdint>
#include <functional>

#include "estimators/tape/tape.h"

namespace memplan {

enum class Precision : std::uint8_t;
struct TrainingSetup;

/// Puts back what functionalization took away: `out += identity` and nn.ReLU(inplace=True) become in-place ops. By
/// the line of Python where a call stands; for modules by Exported::inplace_modules and by the table
/// data/aten/inplace_modules.json of what libraries construct with inplace=True. What was changed is added to
/// Tape::recovered.
void recover_inplace(Tape& tape);

/// The same of `x[a:b] = y`, which functional graphs have as aten::slice_scatter: a copy of x with y in it. Where
/// nobody reads the x from before, it becomes a write into a view.
void recover_slice_writes(Tape& tape);

/// What model.eval() and no_grad change beyond dropout and batch norm in a graph that was exported in training mode:
/// StochasticDepth and DropPath return their input; nn.MultiheadAttention takes its fast path (not under autocast).
void enter_inference(Tape& tape, Precision precision);

/// transformers builds other programs while it is traced: eager code passes no mask to attention where the mask would
/// be causal or true everywhere (masking_utils.py: is_causal=True instead), and then leaves key and value heads
/// unrepeated (integrations/sdpa_attention.py: enable_gqa=True). Masks that depend on an input stay.
void recover_causal_masks(Tape& tape);

/// Gated delta rules solve a triangular system in eager code; while they are exported they build its inverse by
/// forward substitution, row by row (transformers, torch_chunk_gated_delta_rule).
void recover_triangular_solves(Tape& tape);

/// nn.GRUCell and nn.LSTMCell, which ONNX has as the products, sums and functions that they stand for: one kernel on
/// CUDA.
void recover_recurrent_cells(Tape& tape);

/// nn.RNN, which ONNX files have as the ops of each step of each layer: one call of cuDNN on CUDA.
void recover_recurrent_layers(Tape& tape, const TrainingSetup& setup);

/// `x * (y > 0)` of a float and a boolean tensor is one kernel; PyTorch's ONNX exporter casts the mask before it, in a
/// pass of its own (torch/onnx/_internal/fx/passes/type_promotion.py).
void recover_type_promotion(Tape& tape);

/// torch.rms_norm (nn.RMSNorm), which ONNX below opset 23 has as a power, a mean, a root and products: one kernel on
/// CUDA.
void recover_rms_norms(Tape& tape);

/// torch.var and torch.std, torch.nan_to_num, F.cosine_similarity and dropouts of whole feature maps, which ONNX files
/// have as the calls that PyTorch's exporter takes them apart into.
void recover_whole_ops(Tape& tape, const TrainingSetup& setup);

/// nn.MultiheadAttention that computes its weights gives their mean over the heads as well, for the line
/// `x, _ = self.attn(x, x, x)`; nothing in a file reads it, so an exporter's optimizer takes it out.
void average_weights(Tape& tape);

/// torch._weight_norm, which ONNX files have as the ops that it stands for: one kernel on CUDA, which keeps the norms.
void recover_weight_norms(Tape& tape);

/// Lines of some classes hand on a tensor without its gradient, `x.detach()`, which no node of an ONNX file says.
void recover_detached_arguments(Tape& tape);

/// peft freezes what stands beside its adapters, which an ONNX file does not say.
void freeze_beside_adapters(Tape& tape);
void freeze_by_class(Tape& tape);

/// What modules look up in a parameter of theirs once and for all in inference is a buffer of theirs.
void keep_in_inference(Tape& tape);

/// Reading::unseen_casts: conversions that a line of a helper asks for convert nothing.
void leave_unseen_casts(Tape& tape);

/// Buffers that a file of torch.export's strict mode lacks, because no op reads them, where the classes of the modules
/// tell of them; a note says that there may be others.
void add_unread_buffers(Tape& tape);

/// Tensors that modules move to the device beside their parameters and buffers.
void keep_moved_attributes(Tape& tape);

/// Weights that a hook makes before each forward pass of a module and puts into an attribute of it.
void keep_hooked_weights(Tape& tape);

/// Removes calls whose results nobody uses, among those that `may_go(call, index)` allows; what only they read goes
/// too.
void remove_unused_calls(Tape& tape, const std::function<bool(const Call&, std::size_t)>& may_go);

/// The same where the file has the nodes that move it (made_tensor.h): what is made of such tensors alone is on the CPU
/// up to there, unless something reads it that would not work with both devices.
void leave_constants_on_host(Tape& tape);

/// A tensor that a module holds as a plain attribute and that its lines move to the device, `self.table.to(x.device)`,
/// is on the CPU, and each such line makes a copy.
void copy_host_constants(Tape& tape);

/// Removes calls on integers, booleans and sizes whose results nobody uses.
void remove_dead_calls(Tape& tape);

}  // namespace memplan
