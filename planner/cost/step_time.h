// How long a step takes, from what it computes and moves: a model for putting setups in order, not a measurement.
#pragma once

#include <string>
#include <vector>

#include "estimators/facts/rates.h"
#include "planner/cost/profile.h"

namespace memplan {

/// What the model takes for granted. Each is an assumption, stated in reports, and none was fitted to a run.
struct TimeAssumptions {
  /// Share of the peak that large products reach. Published maxima of matrix products: A100 271 of 312, H100 794 of
  /// 989, B200 1745 of 2250 TFLOP/s (stas00/ml-engineering, compute/accelerator): 0.78 to 0.87.
  double matrix = 0.8;
  double memory = 0.9;  ///< share of the memory bandwidth that streaming kernels reach (cli99/llm-analysis: 0.9)
  double issue = 5e-6;  ///< seconds in which eager PyTorch issues one kernel: no op takes less
  double link = 0.8;    ///< share of a link's rate that collectives reach (8 x H200: 361 of 450 GB/s, ml-engineering)
  double latency = 10e-6;      ///< seconds per hop of a collective
  std::int64_t per_node = 8;   ///< GPUs that the fast links join
  double host_memory = 100e9;  ///< bytes/s of host memory for one GPU's offloaded optimizer
  double network = 50e9;  ///< bytes/s and direction of a GPU's share of the network between nodes (400 Gbit/s each)
};

/// The sentences that a report prints.
std::vector<std::string> sentences(const TimeAssumptions& assumptions);

/// Seconds of one optimizer step (all its micro-batches).
struct StepTime {
  double forward = 0, backward = 0;
  double again = 0;          ///< forward parts that checkpointing runs a second time
  double optimizer = 0;      ///< updates, clipping, sums of gradients over micro-batches
  double communication = 0;  ///< what no computation hides
  double offload = 0;        ///< likewise
  double bubble = 0;         ///< ranks of a pipeline that wait
  double total() const { return forward + backward + again + optimizer + communication + offload + bubble; }
};

/// Calls of the same size once, with how many there are; figures are straight lines in the batch.
struct WorkItem {
  Unit unit = Unit::fp32;
  double count = 0, again = 0;
  double forward_flops[2], backward_flops[2], forward_bytes[2], backward_bytes[2];  ///< at the two batches of the line
};

/// What micro-batches of any size cost, through two profiles. Work per call is a straight line in the batch: weights
/// are read once, all else grows with the samples.
struct WorkLine {
  std::int64_t batch[2] = {1, 2};
  std::vector<WorkItem> items;
  std::int64_t trained_elements = 0, trained_tensors = 0;
  double forward_flops[2] = {0, 0}, backward_flops[2] = {0, 0};
};

/// `a` and `b` are profiles of one setup at two different batches. Failure(internal) where their calls differ.
WorkLine work_line(const Profile& a, std::int64_t batch_a, const Profile& b, std::int64_t batch_b);

/// How a rank's share of the work follows from the whole model's.
struct Share {
  double products = 1;  ///< of the matrix products
  double rest = 1;      ///< of everything else
};

/// Forward, backward and repeated parts of one micro-batch on one device.
StepTime micro_batch_time(const WorkLine& work, std::int64_t batch, const Share& share, const DeviceRates& rates,
                          const TimeAssumptions& assumptions);

/// Updating `elements` parameters in `tensors` tensors that lie on the device as fp32 (or 2-byte) values.
double optimizer_time(const OptimizerSetup& optimizer, std::int64_t elements, std::int64_t tensors, int element_bytes,
                      const DeviceRates& rates, const TimeAssumptions& assumptions);

/// Passes over all gradients: sums of micro-batches, clipping, unscaling.
double gradient_time(const TrainingSetup& setup, std::int64_t micro_batches, std::int64_t elements, int element_bytes,
                     const DeviceRates& rates, const TimeAssumptions& assumptions);

}  // namespace memplan
