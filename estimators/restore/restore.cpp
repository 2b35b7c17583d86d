#include "estimators/restore/restore.h"

#include <fmt/format.h>

#include "estimators/pipeline.h"
#include "estimators/restore/casts.h"
#include "estimators/restore/checkpoint_lines.h"
#include "estimators/restore/frozen.h"
#include "estimators/restore/host_numbers.h"
#include "estimators/restore/kept_keys.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/restore/names.h"
#include "estimators/restore/open_places.h"
#include "estimators/restore/passes.h"
#include "estimators/restore/training_draws.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/tape/check.h"

namespace memplan {

namespace {

bool restored_always(const Tape&, const TrainingSetup&) { return true; }

/// A recorded program has lost nothing.
bool exported(const Tape& t, const TrainingSetup&) { return !t.exported.recorded; }

bool exported_for_inference(const Tape& t, const TrainingSetup& s) {
  return s.mode == Mode::inference && exported(t, s);
}

bool traced_with_masks(const Tape& t, const TrainingSetup& s) {
  return t.reading.masks != MaskReading::traced && exported(t, s);
}

/// A trial: they convert nothing.
bool unseen_casts_read(const Tape& t, const TrainingSetup&) { return !t.reading.unseen_casts; }

void leave_numbers_on_host(Tape& t, const TrainingSetup&) {
  leave_on_host(t);
  leave_constants_on_host(t);
  copy_host_constants(t);
}

void recover_recurrent(Tape& t, const TrainingSetup& s) {
  recover_recurrent_cells(t);
  recover_recurrent_layers(t, s);
}

void keep_attributes(Tape& t, const TrainingSetup&) {
  average_weights(t);
  keep_hooked_weights(t);
  keep_moved_attributes(t);
  add_unread_buffers(t);
}

constexpr RestorePass restore_table[] = {
    {"causal masks", traced_with_masks, [](Tape& t, const TrainingSetup&) { recover_causal_masks(t); }},
    {"unseen casts", unseen_casts_read, [](Tape& t, const TrainingSetup&) { leave_unseen_casts(t); }},
    {"triangular solves", exported, [](Tape& t, const TrainingSetup&) { recover_triangular_solves(t); }},
    {"recurrent layers", exported, recover_recurrent},
    {"whole ops", exported, recover_whole_ops},
    {"type promotion", exported, [](Tape& t, const TrainingSetup&) { recover_type_promotion(t); }},
    {"norms", exported, [](Tape& t, const TrainingSetup&) { recover_rms_norms(t), recover_weight_norms(t); }},
    {"attributes", exported, keep_attributes},
    {"eval mode",
     [](const Tape& t, const TrainingSetup& s) { return s.mode == Mode::inference && !t.exported.in_eval; },
     [](Tape& t, const TrainingSetup& s) { enter_inference(t, dtype_of_run(s)), read_training_draws(t); }},
    {"kept results", exported_for_inference, [](Tape& t, const TrainingSetup&) { keep_in_inference(t); }},
    {"numbers on the CPU", exported, leave_numbers_on_host},
    {"dead calls", exported, [](Tape& t, const TrainingSetup&) { remove_dead_calls(t); }},
    {"in-place ops",
     [](const Tape& t, const TrainingSetup& s) {
       return s.inplace_activations && t.exported.functional && t.reading.in_place != InPlaceReading::never;
     },
     [](Tape& t, const TrainingSetup&) {
       recover_slice_writes(t);
       recover_inplace(t);
     }},
    {"frozen parts", exported,
     [](Tape& t, const TrainingSetup&) {
       freeze_beside_adapters(t);
       if (t.exported.tells_frozen) return;
       freeze_by_class(t), freeze_by_name(t);
       recover_detached_arguments(t);
     }},
    {"names", exported, [](Tape& t, const TrainingSetup&) { bind_names(t); }},
    {"casts", [](const Tape& t, const TrainingSetup&) { return t.reading.casts && !t.exported.recorded; },
     [](Tape& t, const TrainingSetup& s) {
       restore_casts(t);
       restore_loss_casts(t);
       convert_parameters(t), widen_named(t), convert_in_functions(t), widen_own_losses(t);
       follow_asked_dtypes(t);
       if (s.precision != Precision::fp32) follow_drawn_dtypes(t, s.precision), convert_named(t);
       begin_caches_like_keys(t), make_open_casts(t);
     }},
    {"model dtype", [](const Tape& t, const TrainingSetup&) { return !t.exported.in_dtype; },
     [](Tape& t, const TrainingSetup& s) { follow_model_dtype(t, dtype_of_run(s)); }},
    {"recorded dtypes",
     [](const Tape& t, const TrainingSetup&) { return t.exported.recorded && !t.exported.in_dtype && t.reading.casts; },
     [](Tape& t, const TrainingSetup& s) { follow_recorded_dtypes(t, s.precision); }},
    {"open places", exported, [](Tape& t, const TrainingSetup&) { number_checkpointed_lines(t), note_open_places(t); }},
    // Last: it counts the uses that the others leave.
    {"lifetimes", restored_always, [](Tape& t, const TrainingSetup&) { mark_last_uses(t); }},
};

}  // namespace

std::span<const RestorePass> restore_passes() { return restore_table; }

Result<Tape> restore(Tape tape, const TrainingSetup& setup) {
  return catching([&] {
    for (const RestorePass& pass : restore_passes()) {
      if (!pass.when(tape, setup)) continue;
      pass.run(tape, setup);
      verify(tape, "restore", pass.name);
    }
    return std::move(tape);
  });
}

}  // namespace memplan
