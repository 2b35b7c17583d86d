#include <torch/version.h>

#include "memplan_torch/commands.h"
#include "memplan_torch/libraries.h"

namespace memplan::torch_side {

nlohmann::json run_version(const nlohmann::json&) {
  const std::string problem = open_cuda();
  return {
      {"torch", TORCH_VERSION}, {"libraries", library_version()}, {"cuda", problem.empty()}, {"cuda_problem", problem}};
}

}  // namespace memplan::torch_side
