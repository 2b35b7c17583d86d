// Memory that NCCL takes from the driver by itself, outside PyTorch's counters.
#pragma once

#include "estimators/base/bytes.h"

namespace memplan {

/// For a process that is in `communicators` groups of more than one rank. Each makes its own buffers; their size
/// depends on topology, channels and version, so this is the measured case of data/nccl/memory.csv that is marked
/// there, per communicator, and reports call it assumed.
Bytes nccl_bytes(int communicators);

}  // namespace memplan
