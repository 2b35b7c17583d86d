// What PyTorch or ONNX Runtime said of a run's memory, wherever it said it: a dry run, a snapshot file, memory_stats(),
// one figure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "estimators/base/bytes.h"

namespace memplan {

/// PyTorch's counters and the process's bytes; a source may know some of them only.
struct MeasuredCounters {
  std::optional<Bytes> requested, allocated, reserved, process;
};

/// The words of --counter, in the order in which they are shown.
inline constexpr const char* counter_names[] = {"requested", "allocated", "reserved", "process"};
/// The counter of that name, or nullptr.
inline std::optional<Bytes>* counter_of(MeasuredCounters& c, std::string_view name) {
  return name == "requested"   ? &c.requested
         : name == "allocated" ? &c.allocated
         : name == "reserved"  ? &c.reserved
         : name == "process"   ? &c.process
                               : nullptr;
}

struct MeasuredStep {
  std::int64_t step = 0;  ///< 0: set-up
  MeasuredCounters peak, after;
};

struct MeasuredPhase {
  std::int64_t step = 0;
  std::string phase;  ///< name_of(Phase)
  MeasuredCounters peak;
};

struct MeasuredOp {
  std::int32_t name = -1, node = -1;  ///< into Measurement::names: "aten::mm", "MmBackward0"; -1 unknown
  std::int32_t call = -1;             ///< into the tape's calls; -1: none
  std::int32_t phase = -1;            ///< into Measurement::names
  std::int64_t step = 0;
};

struct MeasuredEvent {
  enum class Kind : std::uint8_t { alloc, free, segment_alloc, segment_free, out_of_memory } kind = Kind::alloc;
  std::int64_t bytes = 0;  ///< as requested; of segments: as the driver was asked
  std::uint64_t address = 0;
  std::int32_t op = -1;  ///< into Measurement::ops; -1 unknown
};

/// A block that was alive at the peak of a snapshot's trace.
struct MeasuredBlock {
  std::int64_t bytes = 0;
  std::string where;  ///< the frame of the program that asked for it; may be empty
};

/// What an arena took from the driver in one piece.
struct MeasuredRegion {
  std::int64_t bytes = 0, step = 0;
};

struct Measurement {
  std::string source;                                   ///< "PyTorch 2.11.0 on an emulated NVIDIA A100-SXM4-80GB"
  std::string program = "PyTorch", step_word = "step";  ///< who asked for memory, and what it calls a step
  std::string device;                                   ///< as PyTorch names it; may be empty
  MeasuredCounters peak;
  std::vector<MeasuredStep> steps;    ///< of dry runs
  std::vector<MeasuredPhase> phases;  ///< of dry runs
  std::vector<std::string> names;
  std::vector<MeasuredOp> ops;
  std::vector<MeasuredEvent> events;
  std::vector<MeasuredRegion> regions;         ///< of sessions of ONNX Runtime, in order
  std::vector<MeasuredBlock> largest_at_peak;  ///< of snapshots with a trace
  std::string out_of_memory;                   ///< PyTorch's message, where it ran out
  std::vector<std::string> notes;              ///< what to know about these figures
};

}  // namespace memplan
