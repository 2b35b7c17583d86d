#include "estimators/estimate/reasons.h"

namespace memplan {

std::string default_reason(Category category) {
  switch (category) {
    case Category::parameter:
      return "parameter";
    case Category::buffer:
      return "buffer of the module";
    case Category::gradient:
      return "gradient, until zero_grad";
    case Category::optimizer_state:
      return "optimizer state";
    case Category::activation:
      return "used by a later op";
    case Category::temporary:
      return "in use by the running op";
    case Category::workspace:
      return "kept by the library until the process ends";
    case Category::input:
      return "batch";
    case Category::output:
      return "the name of the model's output";
  }
  return {};
}

}  // namespace memplan
