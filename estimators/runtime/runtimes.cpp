#include "estimators/pipeline.h"
#include "estimators/runtime/runtime.h"

namespace memplan {

// Each in a folder of its own.
const Runtime& torch_eager();
const Runtime& onnx_runtime();

RankPrograms Runtime::rank_programs(const Tape&, const TrainingSetup& setup, const Ranks&, const Device&) const {
  fail(ErrorKind::usage, "no pipelines are known for " + title(setup));
}

const std::vector<RuntimeRow>& runtimes() {
  static const std::vector<RuntimeRow> rows{
      {"torch", torch_eager()},
      {"ort", onnx_runtime()},
  };
  return rows;
}

const Runtime& runtime_of(const TrainingSetup& setup) {
  std::string known;
  for (const RuntimeRow& row : runtimes()) {
    if (row.name == setup.runtime.name) return row.runtime;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  fail(ErrorKind::usage, "no runtime is called " + setup.runtime.name, {}, "known runtimes: " + known);
}

Result<Schedule> run_steps(const Tape& tape, const TrainingSetup& setup, const Device& device) {
  return catching([&] { return runtime_of(setup).schedule(tape, setup, resolve(setup.parallel), device); });
}

}  // namespace memplan
