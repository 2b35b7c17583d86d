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

enum class WorkspaceLife : std::uint8_t {
  kept,      ///< from the first call on, for every thread and stream
  per_call,  ///< made for a call and freed behind it
};

/// What PyTorch takes for libraries of CUDA.
struct LibraryWorkspaces {
  /// getChosenWorkspaceSize (aten/src/ATen/cuda/CublasHandlePool.cpp), per thread and stream.
  Bytes cublas;
  std::map<int, Bytes> cublas_of_sm;  ///< compute capabilities (90) that have another size
  Bytes cublas_lt;                    ///< of cuBLASLt, likewise
  WorkspaceLife cublas_life = WorkspaceLife::kept, cublas_lt_life = WorkspaceLife::kept;
  bool cublas_lt_shares_cublas = false;  ///< of what is kept: TORCH_CUBLASLT_UNIFIED_WORKSPACE
  bool cublas_lt_sets_cublas = true;     ///< of what is kept: cuBLASLt's handle comes with cuBLAS's workspace
  /// cuDNN's random state: for every thread that the device can run.
  Bytes cudnn_dropout_per_thread;
  std::string_view cudnn;  ///< "9.19", whose workspaces of convolutions are taken (aten/cudnn_workspace.h)

  Bytes cublas_on(int sm) const {
    const auto it = cublas_of_sm.find(sm);
    return it == cublas_of_sm.end() ? cublas : it->second;
  }
};

/// Which kernel scaled dot product attention runs (native/transformers/cuda/sdp_utils.cpp), and what it keeps.
struct AttentionRules {
  std::set<int> cudnn_first;  ///< compute capabilities where cuDNN stands before flash; elsewhere it stands last
  int fused_from_sm = 0;      ///< flash, cuDNN, and the efficient kernel in bfloat16
  std::int64_t flash_widest = 0;
  std::int64_t cudnn_widest = 0;
  std::map<int, std::int64_t> cudnn_widest_of_sm;  ///< compute capabilities that have another limit
  bool cudnn_wide_is_widest = false;               ///< beyond `cudnn_widest` only exactly the limit of `_of_sm`
  bool cudnn_dropout_in_sixteenths = false;        ///< cuDNN only where dropout is a multiple of 1/16
  bool efficient_groups_heads = false;             ///< the efficient kernel takes fewer heads of keys than of queries
  bool efficient_keeps_seed = false;               ///< of its random numbers, on the device, whatever dropout is

  bool cudnn_takes(std::int64_t width, int sm) const {
    const auto of_sm = cudnn_widest_of_sm.find(sm);
    const std::int64_t widest = of_sm == cudnn_widest_of_sm.end() ? cudnn_widest : of_sm->second;
    return width <= cudnn_widest || (cudnn_wide_is_widest ? width == widest : width <= widest);
  }
};

/// torch.optim: what an optimizer runs where the program does not say foreach or fused.
struct OptimizerDefaults {
  std::set<OptimizerKind> absent;      ///< torch.optim does not have them yet
  std::set<OptimizerKind> fused;       ///< have a fused implementation on CUDA
  std::set<OptimizerKind> one_by_one;  ///< do not take foreach unless asked
};

struct DdpConstants {
  std::int64_t default_bucket_mib = 0;  ///< bucket_cap_mb where the program leaves it out
  std::int64_t first_bucket = 0;        ///< bytes of the first bucket then
  std::int64_t broadcast_bucket = 0;
  bool lazy_buckets = false;  ///< has lazy_bucket_allocation
};

struct FsdpConstants {
  /// split_with_sizes_copy and _chunk_cat: threads of a block and bytes that it copies at a time.
  std::int64_t copy_threads = 0, copy_block = 0;
  bool reduce_buffers = false;  ///< has set_reduce_scatter_max_input_buffers
  bool keep_unsharded = false;  ///< has set_keep_unsharded_storage
};

/// Where kernels of a version take other memory, or take it in another order.
struct KernelRules {
  bool embedding_sorts_needed_bits = false;  ///< its backward sorts by as many bits as rows have; else by all 64
  std::int64_t embedding_scan_bytes = 16;    ///< of a tile in the prefix sums of its backward
  bool cudnn_recurrent_bf16 = true;          ///< recurrent layers of bfloat16 run in cuDNN; else step by step in ATen
  bool extremes_together = false;            ///< checks of a range ask for both ends before they look at either
  bool fused_rms_norm = true;                ///< one kernel; else a chain of plain ops
  bool group_norm_wide_statistics =
      false;  ///< of 16-bit inputs: fp32 copies of mean and deviation beside scale and shift
  bool group_norm_saves_given =
      false;  ///< a dense copy of its input is made for the kernel alone, forward and backward
  bool group_norm_keeps_channels_last = false;
};

/// What a version does otherwise than the one before it, for people who upgrade.
struct VersionChange {
  std::string_view parts;     ///< of an estimate, those that it moves: "workspaces, activations"; names of categories
  std::string_view what;      ///< a sentence without a stop
  std::string_view ops = {};  ///< a part of the names of the ops that it is about, "convolution"; empty: of all
};

struct TorchProfile {
  std::string version;                 ///< "2.11"
  std::vector<VersionChange> changes;  ///< against the row before
  /// Whole runs of this version were recorded and compared (docs/versions.md). Otherwise nothing it says is exact.
  bool compared = false;
  bool environments_compared = false;  ///< runs with variables of the environment, likewise
  /// Ops that the version adds to base_ops() or replaces in it (aten/op_table.h), in this order.
  std::vector<void (*)(OpTable&)> op_changes;
  AutocastLists autocast;
  AllocatorConstants allocator;
  std::string_view allocator_variable = "PYTORCH_ALLOC_CONF";  ///< the environment variable that sets it
  std::set<std::string_view> reads;  ///< variables of the environment (environment.h); others change nothing
  LibraryWorkspaces workspaces;
  AttentionRules attention;
  KernelRules kernels;
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

/// Failure(usage) with the known versions unless `text` is one of them, as in 2.13, 2.13.1 or 2.15.0+cu132, or a later
/// 2.x.
void check_version(std::string_view text);

/// The row for what runs: the version asked for, else the one that wrote the file, else the newest that is known (each
/// text may be empty). Of a version without a row it is the nearest one, which then is an assumption.
RuntimeSetup choose_version(std::string_view asked, std::string_view written_by);

/// The profile that the setup names, or its own.
const TorchProfile& profile_of(const TrainingSetup& setup);

}  // namespace memplan
