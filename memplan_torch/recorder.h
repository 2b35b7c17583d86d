// What PyTorch's caching allocator does while a program runs: every allocation and free with the op behind it, and the
// counters of torch.cuda.memory_stats() at the borders of phases.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace memplan::torch_side {

/// The three counters of the allocator that the estimate speaks of, in bytes.
struct Counts {
  std::int64_t requested = 0, allocated = 0, reserved = 0;
};

class Recorder {
 public:
  /// Attaches to the allocator of this CUDA device. One per process: PyTorch cannot detach a tracker.
  explicit Recorder(int device);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// What follows belongs to this step (0: set-up) and phase. Peaks are taken per phase.
  void enter(int step, const char* phase);
  /// What follows belongs to this call of the tape; -1: to none. Autograd nodes made meanwhile are its own, so that
  /// their backward is, too, unless the call only runs again for a checkpoint.
  void begin_call(std::int32_t call);
  void end_call(bool recorded = true);
  void empty_cache();
  /// Ends the last step and phase.
  void finish();

  /// Bytes in use on the device by every process and context, and its size, as the driver says.
  std::pair<std::int64_t, std::int64_t> device_memory() const;

  /// {"steps": [{"step", "peak", "after", "segments", "retries"}], "phases": [{"step", "phase", "peak"}],
  ///  "ops": [[name, call, phase, step, node]], "names": […], "events": [[kind, bytes, address, op]]}
  nlohmann::json report(bool with_events) const;

  struct State;

 private:
  void close_phase();

  std::unique_ptr<State> state_;
};

}  // namespace memplan::torch_side
