// Device memory that a kernel takes for as long as it runs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "estimators/base/evidence.h"
#include "estimators/facts/device.h"
#include "estimators/frontends/onnx/inferred.h"
#include "estimators/runtime/ort/versions/versions.h"
#include "estimators/setup/onnxruntime.h"
#include "estimators/tape/reading.h"

namespace memplan {
class CudnnLibrary;
}

namespace memplan::ort {

struct Scratch {
  std::vector<std::int64_t> bytes;  ///< requests in order, all given back when the kernel ends
  std::vector<std::int64_t> kept;   ///< requests when the session makes the kernel, for as long as it lives
  std::optional<Note> note;         ///< where it comes from, where no source states it
  std::int64_t ones = 0;            ///< bytes of ones that the session keeps from now on, for all nodes of the dtype
};

struct ScratchContext {
  const OrtSetup& setup;
  const OrtProfile& profile;
  const Device& device;
  WorkspaceReading reading;
  CudnnLibrary* cudnn;                       ///< asked where the table has nothing; null: none
  std::function<bool(GraphValueId)> stored;  ///< whether the file holds the value
};

Scratch scratch_of(const onnx_format::At& at, const ScratchContext& context);

}  // namespace memplan::ort
