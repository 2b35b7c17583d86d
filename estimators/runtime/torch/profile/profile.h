// What differs between versions of PyTorch, as one value: the table of ops, the allocator's constants, the workspaces
// of libraries, autocast's lists, the wrappers' constants. Rows, wrappers and the allocator ask the profile that their
// run was given, never a version number.
//
// Adding a version: a file of versions/ that copies the version before it and overrides what has changed
// (torch_2_11.cpp is the first one and says everything) and a row in profiles.cpp there.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/runtime/torch/allocator/rounding.h"
#include "estimators/setup/setup.h"

namespace memplan {

class OpTable;

/// Names of ops without "aten::" and overload, by what autocast does before them (aten/src/ATen/autocast_mode.h).
struct AutocastLists {
  using Names = std::set<std::string, std::less<>>;
  Names lower, fp32, fp32_dtype_argument, promote;
};

/// What PyTorch keeps for libraries of CUDA.
struct LibraryWorkspaces {
  /// getChosenWorkspaceSize (aten/src/ATen/cuda/CublasHandlePool.cpp), per thread and stream.
  Bytes cublas;
  std::map<int, Bytes> cublas_of_sm;     ///< compute capabilities (90) that have another size
  Bytes cublas_lt;                       ///< of cuBLASLt, likewise
  bool cublas_lt_shares_cublas = false;  ///< TORCH_CUBLASLT_UNIFIED_WORKSPACE
  /// cuDNN's random state: for every thread that the device can run.
  Bytes cudnn_dropout_per_thread;
  std::string_view cudnn_table;  ///< workspaces of convolutions, a file of data/ (aten/cudnn_workspace.h)

  Bytes cublas_on(int sm) const {
    const auto it = cublas_of_sm.find(sm);
    return it == cublas_of_sm.end() ? cublas : it->second;
  }
};

/// Which kernel scaled dot product attention runs (native/transformers/cuda/sdp_utils.cpp).
struct AttentionRules {
  std::set<int> cudnn_first;  ///< compute capabilities where cuDNN stands before flash; elsewhere it stands last
  int fused_from_sm = 0;      ///< flash, cuDNN, and the efficient kernel in bfloat16
  std::int64_t flash_widest = 0;
  std::int64_t cudnn_widest = 0;
  std::map<int, std::int64_t> cudnn_widest_of_sm;  ///< compute capabilities that have another limit

  std::int64_t cudnn_widest_on(int sm) const {
    const auto it = cudnn_widest_of_sm.find(sm);
    return it == cudnn_widest_of_sm.end() ? cudnn_widest : it->second;
  }
};

/// torch.optim: what an optimizer runs where the program does not say foreach or fused.
struct OptimizerDefaults {
  std::set<OptimizerKind> fused;       ///< have a fused implementation
  std::set<OptimizerKind> one_by_one;  ///< do not take foreach unless asked
};

struct DdpConstants {
  std::int64_t default_bucket_mib = 0;  ///< bucket_cap_mb where the program leaves it out
  std::int64_t first_bucket = 0;        ///< bytes of the first bucket then
  std::int64_t broadcast_bucket = 0;
};

struct FsdpConstants {
  /// split_with_sizes_copy and _chunk_cat: threads of a block and bytes that it copies at a time.
  std::int64_t copy_threads = 0, copy_block = 0;
};

struct TorchProfile {
  std::string version;  ///< "2.11"
  /// Ops that the version adds to base_ops() or replaces in it (aten/op_table.h), in this order.
  std::vector<void (*)(OpTable&)> op_changes;
  AutocastLists autocast;
  AllocatorConstants allocator;
  LibraryWorkspaces workspaces;
  AttentionRules attention;
  OptimizerDefaults optimizer;
  DdpConstants ddp;
  FsdpConstants fsdp;

  std::shared_ptr<const OpTable> ops;  ///< made by finished() of the changes and the lists

  std::string name() const { return "PyTorch " + version; }
};

/// The profile with its table of ops, as a run needs it.
TorchProfile finished(TorchProfile profile);

struct ProfileRow {
  std::string_view version;
  const TorchProfile& (*profile)();  ///< made when it is first asked for, and the same ever after
};
const std::vector<ProfileRow>& profiles();

/// Failure(usage) with the known versions where there is no such row.
const TorchProfile& profile_named(std::string_view version);

/// The profile that the setup names, or its own.
const TorchProfile& profile_of(const TrainingSetup& setup);

}  // namespace memplan
