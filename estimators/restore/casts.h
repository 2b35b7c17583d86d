// Casts that an export in fp32 leaves no trace of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

enum class Precision : std::uint8_t;

/// What follows a name in a line that converts it to fp32.
inline constexpr std::string_view fp32_conversions[] = {".float()", ".to(torch.float32)", ".type(torch.float32)"};

/// `x.to(torch.float32)` on an fp32 tensor is no call, so a graph exported in fp32 lacks the casts that the module
/// makes when it runs in half precision or under autocast. Puts back those of modules that data/libraries/modules.json
/// has with the fact "casts", by its detail:
///   rms_norm:  statistics and product in fp32, cast back before the weight
///   t5_norm:   statistics in fp32, product cast to the weight's dtype
///   rotary:    everything in fp32 with autocast off, results cast to the dtype of the hidden states
///   softmax:   in fp32, cast back
///   to_weight: input cast to the weight's dtype
///   noise:     made in the dtype of the input that it multiplies
/// In fp32 the calls put in do nothing. To be called after bind_names: the names that hold their results are set. What
/// was put back is added to Tape::recovered.
void restore_casts(Tape& tape);

/// `x.float()` beside the call, in its frame and on its line: what the passes below put in.
Call fp32_copy(Tape& tape, ValueId x, const Call& beside);
/// `x.type_as(other)`, likewise.
Call copy_like(Tape& tape, ValueId x, ValueId other, const Call& beside);

/// Norms that compute in fp32 whatever they get.
inline bool is_norm(std::string_view op) {
  return op == "aten::layer_norm" || op == "aten::group_norm" || op == "aten::rms_norm";
}

/// Calls with the index of the one that each stands before, ascending.
using CallsBefore = std::vector<std::pair<std::size_t, Call>>;

/// Most tapes get none, and are not copied.
void insert_calls(std::vector<Call>& calls, CallsBefore before);

/// Losses of transformers convert the logits to fp32 ("widens_logits"): put back where the file keeps no conversions.
void restore_loss_casts(Tape& tape);

/// "x" of `a, b = x.float().chunk(2)`: names that the line converts to fp32 wherever it reads their elements.
std::vector<std::string> widened_names(std::string_view source);

/// `name.float()` in a line that reads the name nowhere else: put back where the file keeps no conversions, and a line
/// before says what the name holds, or the line reads one tensor only, as those of functions do.
void widen_named(Tape& tape);

/// Conversions inside of functions that are known step by step (function_names.h).
void convert_in_functions(Tape& tape);

/// `x + self.pos_embed.to(x.dtype)`, the conversion of a parameter that the line names: put back where the file keeps
/// none, and a line before says what `x` holds.
void convert_parameters(Tape& tape);

/// Losses in the model whose line converts what they are given, `F.cross_entropy(logits.float(), …)`: put back where
/// the file keeps no conversions. `logits = logits.float()` is a line without a call, which the file does not show:
/// with Reading::widened_losses every cross entropy is read so.
void widen_own_losses(Tape& tape);
/// Whether that reading has anything to convert.
bool has_own_loss(const Tape& tape);

/// `torch.rand(shape, dtype=x.dtype)` makes a half tensor under autocast where x is one: the dtype of what the line
/// names takes the place of the one that the export wrote. To be called after bind_names.
void follow_asked_dtypes(Tape& tape);

/// The same where a helper method draws a mask, as `drop_connect(x)` does, or makes the zeros that it puts before
/// something, and no line shows how: they are taken to be of the type of what they meet. Reading::open_casts: of the
/// type that autocast has, as where the method asks for that of another tensor.
void follow_drawn_dtypes(Tape& tape, Precision precision);
inline constexpr const char* drawn_dtype = "x.dtype";  ///< Recovery::op of these

/// `out.type_as(x)` in a function of the model leaves the name of its result, "type_as_1", and x is the one tensor in
/// half precision that the function was given: it computes in fp32 between. To be called after the others.
void convert_named(Tape& tape);

/// Reading::open_casts. Of files that keep no conversions: norms of the model's own classes give what they were given,
/// `return x.to(orig_type)`, and parameters that helper methods add or join are converted to the type of the tensor
/// beside them. Of all: products of two tensors that were just widened are made with autocast off.
void make_open_casts(Tape& tape);
bool has_open_casts(const Tape& tape);

/// Whether the scope is one of those modules.
bool has_restored_casts(const Tape& tape, std::int32_t scope);

/// `torch.empty(n, dtype=x.dtype)` is exported with the dtype that x had. In a model converted to half precision such
/// factories give half tensors, unless their line of Python says float32.
void follow_model_dtype(Tape& tape, Precision precision);

/// A recording in fp32 asked for autocast: `.to(query.dtype)` did nothing there and makes a half tensor here, as
/// `torch.tensor([], dtype=keys.dtype)` does, to which keys are appended. By the line of Python, where it names a dtype
/// without saying which.
void follow_recorded_dtypes(Tape& tape, Precision precision);

}  // namespace memplan
