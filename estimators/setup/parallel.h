// How a job is spread over GPUs: the degrees of each kind of parallelism and what each kind lets a user choose.
//
// One rank is estimated, never all of them: `batch` and the other dimensions of TrainingSetup are what one forward pass
// of one data-parallel replica sees; `sequence` is the whole sequence, which context parallelism divides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "estimators/base/dtype.h"
#include "estimators/setup/strategies.h"

namespace memplan {

/// Of torch.distributed.pipelining; zero_bubble is ScheduleInterleavedZeroBubble, zbv ScheduleZBVZeroBubble.
enum class PipelineSchedule : std::uint8_t { gpipe, one_f_one_b, interleaved, zero_bubble, zbv };

struct ParallelSetup {
  std::int64_t gpus = 0;  ///< the whole job; 0: the product of the degrees. resolve() fills it
  std::int64_t data = 0;  ///< data-parallel ranks (sharded or not); 0: what `gpus` leaves after the other degrees

  Sharding sharding = Sharding::none;
  bool gradient_as_bucket_view = false;        ///< DDP
  std::optional<std::int64_t> bucket_cap_mib;  ///< DDP: bucket_cap_mb; none: what the version of PyTorch takes
  bool lazy_buckets = false;                   ///< DDP: lazy_bucket_allocation, buckets live in the backward pass only
  bool reshard_after_forward = true;           ///< FSDP: false keeps the blocks' weights gathered until their backward
  std::int64_t shard_size = 0;      ///< HSDP: ranks of one shard group (`data / shard_size` replicas); 0: all of `data`
  std::int64_t reduce_buffers = 1;  ///< FSDP: set_reduce_scatter_max_input_buffers
  bool keep_unsharded = false;      ///< FSDP: set_keep_unsharded_storage
  std::optional<DType> param_dtype;           ///< FSDP: MixedPrecisionPolicy(param_dtype)
  std::optional<DType> reduce_dtype;          ///< FSDP: MixedPrecisionPolicy(reduce_dtype)
  std::optional<bool> overlap_communication;  ///< ZeRO: overlap_comm; none: DeepSpeed's default (stage 3 only)
  std::int64_t reduce_bucket = 500'000'000;   ///< ZeRO: reduce_bucket_size, in elements
  std::vector<std::string>
      blocks;  ///< globs over module paths: units of FSDP and of pipeline stages; empty: the repeated blocks

  std::int64_t tensor = 1;
  bool sequence_parallel = false;  ///< of Megatron: norms and residuals work on a share of the sequence
  bool loss_parallel = false;      ///< logits stay cut by the vocabulary, and so does the loss (loss_parallel())
  std::int64_t pipeline = 1;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  std::int64_t virtual_stages = 1;  ///< chunks per rank of the interleaved and zero-bubble schedules
  std::vector<std::int64_t> split;  ///< blocks of every stage in order; empty: dealt out evenly
  std::int64_t micro_batches = 0;   ///< of `batch` samples each, per step; 0: as many as pipeline ranks
  std::int64_t context = 1;
  std::int64_t expert = 1;  ///< cut out of data × context: adds no GPUs
};

/// A ParallelSetup whose degrees are all known and agree. Only resolve() makes one.
struct Ranks : ParallelSetup {
  friend Ranks resolve(ParallelSetup setup);

 private:
  explicit Ranks(ParallelSetup setup) : ParallelSetup(std::move(setup)) {}
};

/// Fills the degrees that follow from the others and checks what does not need the model: no degree below 1, a product
/// that is the number of GPUs, options that belong to a strategy which is not chosen. Failure(usage) names the fields.
Ranks resolve(ParallelSetup setup);

/// More than one GPU.
inline bool is_parallel(const ParallelSetup& p) {
  return p.gpus > 1 || p.data > 1 || p.tensor > 1 || p.pipeline > 1 || p.context > 1;
}

/// Ranks among which FSDP or ZeRO shares one copy out, after resolve().
inline std::int64_t shard_group(const ParallelSetup& p) { return p.shard_size > 0 ? p.shard_size : p.data * p.context; }

inline const DataStrategy& strategy_of(const ParallelSetup& p) { return strategy_of(p.sharding); }
inline bool in_deepspeed(const ParallelSetup& p) { return strategy_of(p).framework == Framework::deepspeed; }
inline bool in_megatron(const ParallelSetup& p) { return strategy_of(p).framework == Framework::megatron; }

const char* name_of(Sharding sharding);
const char* name_of(PipelineSchedule schedule);

/// "8 GPUs: FSDP2 over 4, tensor parallel 2 with sequence parallel", for reports.
std::string describe(const ParallelSetup& setup);

}  // namespace memplan
