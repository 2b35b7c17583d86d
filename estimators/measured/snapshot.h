// A memory snapshot of PyTorch: torch.cuda.memory._snapshot(), as _dump_snapshot writes it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/measured/measurement.h"

namespace memplan {

struct SnapshotBlock {
  std::uint64_t address = 0;
  std::int64_t requested = 0;
  std::string where;
};

struct SnapshotEntry {
  MeasuredEvent event;
  std::int32_t where = -1;  ///< into Snapshot::places
};

/// What memplan needs of a snapshot, of one device: the one with most memory.
struct Snapshot {
  std::int64_t device = 0, devices = 0;
  std::int64_t reserved = 0, allocated = 0, requested = 0;  ///< when it was taken
  std::vector<SnapshotBlock> active;                        ///< blocks in use when it was taken
  std::vector<SnapshotEntry> trace;
  std::vector<std::string> places;  ///< frames: "train.py:12 main"
};

/// Failure(input) on anything else, on code to be run, and beyond the limits of pickle.h.
Snapshot snapshot_from_pickle(std::string_view bytes);
Snapshot snapshot_from_json(const nlohmann::json& json);

/// Peaks of requested and reserved bytes over the trace, and the largest blocks at the peak. Without a trace only the
/// reserved bytes of the moment are a bound of a peak.
Measurement measurement_from_snapshot(const Snapshot& snapshot, const std::string& path);

}  // namespace memplan
