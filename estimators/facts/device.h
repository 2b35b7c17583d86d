// What memplan knows about GPUs: totals, compute capability and the properties that PyTorch's kernels size
// their scratch memory by. Source: data/devices/gpus.csv (each row names where its figures come from).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/base/bytes.h"

namespace memplan {

struct Device {
  std::string key;   ///< "h100-80gb"
  std::string name;  ///< "NVIDIA H100 80GB HBM3"
  int sm_major = 9, sm_minor = 0;
  int multiprocessors = 132;
  int threads_per_multiprocessor = 2048;
  Bytes total;                         ///< what the driver reports (nvidia-smi total)
  Bytes context;                       ///< CUDA's context and the libraries in a process, certainty in `context_source`
  Bytes context_below, context_above;  ///< how far it may lie from that (facts/context.h); 0 where it was given
  std::string context_source;
  bool context_measured = false;  ///< on this machine, by `memplan calibrate`
  std::string source;             ///< where `total` comes from
  bool total_is_bound = false;    ///< no measured figure: the total is a bound and widens the verdict
  int sm() const { return sm_major * 10 + sm_minor; }
};

/// All devices, in the order of the data file.
const std::vector<Device>& devices();

/// How a `--gpu` text was understood, with the sentence that says so.
struct DeviceChoice {
  Device device;
  std::string explanation;  ///< "80GB class -> 79.25 GiB (a100-80gb, the smallest of 4 cards sold as 80 GB)"
};

/// "h100-80gb" names a card; "80GB" means the smallest total among the cards sold under that label;
/// "79GiB" or "85000000000" is an exact size on a device like the H100. Failure(usage) with near names otherwise.
DeviceChoice choose_device(std::string_view text);

/// The context's bytes are given: nothing about them is open.
void set_context(Device& device, Bytes context, std::string source);

}  // namespace memplan
