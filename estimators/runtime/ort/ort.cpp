// ONNX Runtime with its CUDA provider as a runtime: it runs the file's own nodes (Tape::graph) and has an arena.
#include <fmt/format.h>

#include "estimators/runtime/ort/arena.h"
#include "estimators/runtime/ort/session.h"
#include "estimators/runtime/runtime.h"
#include "estimators/setup/field.h"

namespace memplan {

namespace {

class OnnxRuntime final : public Runtime {
 public:
  std::string title(const TrainingSetup& setup) const override {
    const OrtSetup& ort = setup.ort;
    const bool said = ort.version == OrtSetup::newest || ort.version_evidence == Evidence::assumed;  // doubts() says it
    return fmt::format("ONNX Runtime {}, CUDA provider{}", ort.version, said ? "" : " (" + ort.version_why + ")");
  }

  Notes doubts(const TrainingSetup& setup) const override {
    const OrtSetup& ort = setup.ort;
    if (ort.version_evidence != Evidence::assumed) return {};
    return {
        {{}, fmt::format("ONNX Runtime {} is {}", ort.version, ort.version_why), Evidence::assumed, About::version}};
  }

  Schedule schedule(const Tape& tape, const TrainingSetup& setup, const Ranks&, const Device& device) const override {
    if (!tape.graph) fail(ErrorKind::internal, "ONNX Runtime runs the nodes of a file, and this tape carries none");
    return ort::schedule_of(*tape.graph, setup, device, tape.reading);
  }

  std::unique_ptr<Allocator> allocator(const Schedule&, const TrainingSetup& setup,
                                       const Device& device) const override {
    return std::make_unique<ort::Arena>(setup.ort, device.total - outside(setup, device));
  }

  Bytes outside(const TrainingSetup&, const Device& device) const override { return device.context; }
  std::string outside_assumption(const TrainingSetup&, const Device& device) const override {
    return fmt::format(
        "CUDA context {}{}; ONNX Runtime's arena does not count it, nor the workspace that cuBLAS takes "
        "by itself",
        to_human(device.context), device.context_source.empty() ? std::string() : " (" + device.context_source + ")");
  }
};

}  // namespace

const Runtime& onnx_runtime() {
  static const OnnxRuntime runtime;
  return runtime;
}

}  // namespace memplan
