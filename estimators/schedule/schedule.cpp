#include "estimators/schedule/schedule.h"

namespace memplan {

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::setup:
      return "set-up";
    case Phase::data:
      return "data";
    case Phase::forward:
      return "forward";
    case Phase::loss:
      return "loss";
    case Phase::backward:
      return "backward";
    case Phase::clip:
      return "clipping";
    case Phase::optimizer:
      return "optimizer";
  }
  return "?";
}

}  // namespace memplan
