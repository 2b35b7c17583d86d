#include "estimators/schedule/schedule.h"

namespace memplan {

const char* name_of(Category category) {
  switch (category) {
    case Category::parameter:
      return "parameters";
    case Category::buffer:
      return "buffers";
    case Category::gradient:
      return "gradients";
    case Category::optimizer_state:
      return "optimizer state";
    case Category::activation:
      return "activations";
    case Category::temporary:
      return "temporaries";
    case Category::workspace:
      return "workspaces";
    case Category::input:
      return "batch";
    case Category::output:
      return "outputs";
  }
  return "?";
}

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
