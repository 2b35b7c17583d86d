// Micro-batches and steps that ask for what the one before asked for: recorded once more instead of run once more.
#pragma once

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

/// Makes room for [last, end) that many times.
void reserve_stretches(Schedule& schedule, const RecordMark& last, std::size_t times);

/// Adds [last, end), so many steps later, once more. Returns where the new stretch begins.
RecordMark repeat_stretch(Schedule& schedule, const RecordMark& last, std::int32_t steps_later);

}  // namespace memplan
