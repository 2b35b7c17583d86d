// What FSDP2 shards and gathers at a time, and the small buffers of its copies. Names in comments are those of
// torch/distributed/fsdp/_fully_shard.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/runtime/torch/wrappers/wrapper.h"

namespace memplan::fsdp_units {

enum class State : std::uint8_t { idle, forward, pre_backward, post_backward };

/// FSDPParam: rank 0's shard is the first chunk of dimension 0, as long as any.
struct Param {
  Tensor sharded, unsharded;
  Tensor accumulated;       ///< unsharded_accumulated_grad, in the reduce dtype
  std::int64_t padded = 0;  ///< elements of one rank's padded shard
};

/// FSDPParamGroup.
struct Unit {
  std::string path;
  std::vector<Param> params;
  bool reshard_after_forward = true;
  bool gathered = false;
  bool gathered_once = false;
  State state = State::idle;
  Tensor gather_output;                 ///< _all_gather_result, while its copy-out is to come
  std::vector<std::size_t> forward_at;  ///< _post_forward_indices
  Tensor all_reduce_input;              ///< _all_reduce_state
};

/// One call of a unit's module: which calls of the tape, what comes in and what goes out.
struct Visit {
  std::size_t unit = 0;
  std::int32_t first = 0, last = 0;
  std::vector<ValueId> inputs, outputs;
  std::vector<std::pair<std::int32_t, Value>> outside;  ///< the caller's own inputs, while the module runs on aliases
};

inline std::int64_t blocks_of(std::int64_t elements, DType dtype, std::int64_t per_block) {
  return (bytes_of(dtype, elements).count + per_block - 1) / per_block;
}

/// The least turns >= 1 with blocks <= turns * two_waves and blocks * rows <= turns * (turns + 1) * two_waves. Without
/// a loop over them: a weight of a petabyte takes a hundred million.
inline std::int64_t turns_of(std::int64_t blocks, std::int64_t rows, std::int64_t two_waves) {
  const std::int64_t all = checked_mul(blocks, rows), products = all / two_waves + (all % two_waves > 0);
  auto root = static_cast<std::int64_t>((std::sqrt(1 + 4 * static_cast<double>(products)) - 1) / 2);
  while (root > 0 && (root - 1) * root >= products) --root;
  while (root * (root + 1) < products) ++root;
  return std::max({std::int64_t{1}, blocks / two_waves + (blocks % two_waves > 0), root});
}

/// split_with_sizes_copy (aten/src/ATen/native/cuda/TensorShape.cu) sends three numbers per part, a running sum and the
/// part of every block through device memory. A block takes several turns where there would be more blocks than two
/// waves fill; the rule is measured (PyTorch 2.11, 132 multiprocessors): blocks per row <= turns * two waves, and
/// blocks of all rows <= turns * (turns + 1) * two waves.
inline Bytes copy_out_pointers(const FsdpConstants& fsdp, const Device& device, const Unit& u) {
  const std::int64_t two_waves = 2ll * device.multiprocessors * device.threads_per_multiprocessor / fsdp.copy_threads;
  std::int64_t blocks = 0, rows = 0;
  for (const Param& p : u.params) {
    blocks += blocks_of(p.padded, p.unsharded->dtype, fsdp.copy_block);
    rows = p.unsharded->storage->bytes / std::max<std::int64_t>(1, bytes_of(p.unsharded->dtype, p.padded).count);
  }
  const std::int64_t turns = turns_of(blocks, rows, std::max<std::int64_t>(1, two_waves));
  std::int64_t numbers = 4 * static_cast<std::int64_t>(u.params.size()) + 1;
  for (const Param& p : u.params)
    numbers += (blocks_of(p.padded, p.unsharded->dtype, fsdp.copy_block) + turns - 1) / turns;
  return Bytes(8 * numbers);
}

/// _chunk_cat: six numbers per gradient, two more, and the gradient of every block (measured likewise).
inline Bytes copy_in_pointers(const FsdpConstants& fsdp, const std::vector<Param*>& params, DType dtype) {
  std::int64_t numbers = 6 * static_cast<std::int64_t>(params.size()) + 2;
  for (const Param* p : params) numbers += blocks_of(p->padded, dtype, fsdp.copy_block);
  return Bytes(8 * numbers);
}

}  // namespace memplan::fsdp_units
