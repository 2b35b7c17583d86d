// PartitionedParameterCoordinator of DeepSpeed 0.19.8 (deepspeed/runtime/zero/partitioned_param_coordinator.py): which
// parameters of ZeRO-3 are whole at a time. The order of modules is recorded in the first step; from the second on
// parameters are fetched ahead, and kept while they are needed again soon.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "estimators/runtime/torch/aten/run.h"

namespace memplan {

/// Several parameters that are under way in one flat buffer; gone when the last of them has been waited for.
struct ZeroGather {
  Tensor flat;
  std::vector<std::size_t> params;
  bool complete = false;
};

struct ZeroParam {
  Tensor whole;  ///< has memory only while it is gathered
  std::int64_t numel = 0, shard_numel = 0;
  std::int64_t bytes = 0;  ///< of the whole, without padding
  bool persists = false, trains = false;
  bool available = false;
  std::shared_ptr<ZeroGather> under_way;
  std::set<std::size_t> active;   ///< modules that use it now
  std::int64_t fetched_for = -1;  ///< __most_recent_step_id_param_fetched_for
};

class ZeroCoordinator {
 public:
  /// Set before the first use: parameters in registration order (ds_id), those of each module call, and the first call
  /// of the same module.
  std::vector<ZeroParam> params;
  std::vector<std::vector<std::size_t>> own;
  std::vector<std::size_t> identity;
  std::int64_t ranks = 1;
  bool overlap = true, on_host = false;  ///< overlap_comm; shards in host memory

  /// At the start of every forward pass.
  void reset_step(Run& r);
  /// fetch_sub_module: what the module call needs, then what the next ones will.
  void enter(Run& r, std::size_t module, bool forward);
  /// release_sub_module
  void leave(Run& r, std::size_t module);
  /// Its backward pass is over: leave(), unless it had none.
  void backward_over(Run& r, std::size_t module);
  /// release_backward_leftovers: modules whose inputs wanted no gradient.
  void release_leftovers(Run& r);
  /// Before the optimizer's step everything is a shard again; after it small parameters are gathered for good.
  void release_all(Run& r);
  void gather_persisting(Run& r);
  /// What constructing the gradient hooks does: every trained parameter is whole once.
  void gather_each(Run& r);

 private:
  void prefetch(Run& r, std::size_t module);
  void gather(Run& r, std::vector<std::size_t> which);
  void complete_gather(Run& r, ZeroGather& handle);
  void take(Run& r, ZeroParam& p, bool padded);
  void release(Run& r, ZeroParam& p);
  const std::set<std::size_t>& to_release(std::size_t module);
  Tensor from_host(Run& r, const ZeroParam& p);

  bool recorded_ = false, complete_ = false;
  std::vector<std::size_t> order_;  ///< __submodule_order
  std::vector<std::pair<std::size_t, std::int64_t>> trace_;
  std::deque<std::pair<std::size_t, std::int64_t>> queue_;
  std::int64_t step_ = 0, live_ = 0;
  std::vector<std::size_t> running_backward_;
  std::map<std::pair<std::size_t, std::int64_t>, std::set<std::size_t>> released_;
  std::set<std::size_t> everything_;
};

}  // namespace memplan
