// Micro-batches and steps that ask for what the one before asked for: recorded once more instead of run once more.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "estimators/runtime/torch/aten/run.h"
#include "estimators/schedule/schedule.h"

namespace memplan {

/// Where a stretch of a record begins: indices into the lists of a Schedule.
struct RecordMark {
  std::size_t event = 0, allocation = 0, op = 0;
  std::vector<std::int64_t> notes;  ///< how often each was made
};
RecordMark end_of(const Schedule& schedule);

/// Whether the stretch [last, end) is [before, last) again: the same ops and requests in the same order, and frees of
/// what is as far back. Nothing of the earlier stretch is alive any more, so that a third one can only be the same.
bool is_repeated(const Schedule& schedule, const RecordMark& before, const RecordMark& last);

/// What the first stretch left alive and the second one freed, with what the second one made in its place.
using Carried = std::unordered_map<std::int32_t, std::int32_t>;

struct EventRange {
  std::size_t begin = 0, end = 0;
};

/// Whether [second, end) is [first, second) again but for what only a first step does: it makes what then stays for
/// good (states of an optimizer, workspaces), and finds nothing of a step before it to free. Each thing that it left
/// alive has one of the second stretch in its place, so that a third one can only ask for what the second one did, and
/// free what that left. None where it is not so. `once`: what a first step alone does in one go, whatever becomes of
/// it.
std::optional<Carried> repeats_the_first(const Schedule& schedule, const RecordMark& first, const RecordMark& second,
                                         const EventRange& once = {});

/// Adds [last, end), so many steps later, once more. What it frees of the stretch before it is as far back as what it
/// frees of its own, or in `carried`. Returns where the new stretch begins.
RecordMark repeat_stretch(Schedule& schedule, const RecordMark& last, std::int32_t steps_later,
                          const Carried& carried = {});

/// The stretch from `last` on so many times more, as the end of the run's record. `steps_later`: 1 where it is a step,
/// 0 where it is a micro-batch.
void repeat_to_the_end(Run& run, const RecordMark& last, std::int64_t times, std::int32_t steps_later,
                       const Carried& carried = {});

}  // namespace memplan
