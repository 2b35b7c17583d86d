// Every fact that an estimate rests on, from the file to the card.
#pragma once

#include "estimators/base/evidence.h"
#include "estimators/facts/device.h"
#include "estimators/schedule/schedule.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// What a setup and a card take for granted, the most important first; their texts are sentences that reports print.
/// `communication`: what NCCL takes on the card.
Notes facts_of(const TrainingSetup& setup, const Device& device, Bytes communication);

/// Those, then the tape's and the schedule's.
Notes grounds_of(const Tape& tape, const Schedule& schedule, const TrainingSetup& setup, const Device& device,
                 Bytes communication);

}  // namespace memplan
