#include "estimators/runtime/torch/wrappers/zero3_coordinator.h"

#include <algorithm>

namespace memplan {

namespace {

constexpr std::int32_t allgather_stream = 1;
// Defaults of the "zero_optimization" section, in elements.
constexpr std::int64_t prefetch_bucket = 50'000'000, max_live = 1'000'000'000, max_reuse_distance = 1'000'000'000;

}  // namespace

void ZeroCoordinator::reset_step(Run& r) {
  for (ZeroParam& p : params)
    if (p.under_way) {
      complete_gather(r, *p.under_way);
      p.under_way.reset();
      release(r, p);
    }
  if (recorded_ && !complete_) {
    for (std::size_t step = 0; step < order_.size(); ++step)
      for (std::size_t i : own[order_[step]]) trace_.emplace_back(i, static_cast<std::int64_t>(step));
    complete_ = true;
  }
  recorded_ = true;
  queue_ = std::deque<std::pair<std::size_t, std::int64_t>>(trace_.begin(), trace_.end());
  for (ZeroParam& p : params) p.fetched_for = -1;
  step_ = 0;
  live_ = 0;
}

void ZeroCoordinator::enter(Run& r, std::size_t m, bool forward) {
  r.begin_op("ZeRO-3: fetch");
  if (!complete_) order_.push_back(m);
  if (!forward) running_backward_.push_back(m);
  std::vector<std::size_t> needed;
  for (std::size_t i : own[m])
    if (!params[i].available && !params[i].under_way) needed.push_back(i);
  gather(r, needed);
  for (std::size_t i : own[m]) {
    ZeroParam& p = params[i];
    p.active.insert(identity[m]);
    if (!p.under_way) continue;
    complete_gather(r, *p.under_way);
    p.under_way.reset();
  }
  if (complete_) prefetch(r, m);
  ++step_;
}

void ZeroCoordinator::prefetch(Run& r, std::size_t m) {
  std::size_t expected = 0;
  for (std::size_t i : own[m]) expected += params[i].fetched_for < step_;
  for (std::set<std::size_t> taken; !queue_.empty() && taken.size() < expected; queue_.pop_front()) {
    params[queue_.front().first].fetched_for = queue_.front().second;
    taken.insert(queue_.front().first);
  }
  const std::int64_t most = std::min(max_live - live_, prefetch_bucket);
  std::vector<std::size_t> ahead;
  for (std::int64_t elements = 0; !queue_.empty() && elements < most; queue_.pop_front()) {
    const auto [i, last_used] = queue_.front();
    ZeroParam& p = params[i];
    p.fetched_for = std::max(p.fetched_for, last_used);
    if (p.available || p.under_way || std::find(ahead.begin(), ahead.end(), i) != ahead.end()) continue;
    ahead.push_back(i);
    elements += p.numel;
  }
  gather(r, std::move(ahead));
}

Tensor ZeroCoordinator::from_host(Run& r, const ZeroParam& p) {
  return on_host && p.trains ? r.empty({p.shard_numel}, p.whole->dtype, Category::temporary) : Tensor();
}

/// all_gather_coalesced: one parameter into its own buffer, several into a flat one from which they are copied.
void ZeroCoordinator::gather(Run& r, std::vector<std::size_t> which) {
  if (which.empty()) return;
  std::sort(which.begin(), which.end());
  ScopedValue<std::int32_t> stream(r.stream, overlap ? allgather_stream : 0);
  auto handle = std::make_shared<ZeroGather>();
  std::int64_t elements = 0;
  for (std::size_t i : which) {
    live_ += params[i].numel;
    elements += params[i].shard_numel;
    params[i].under_way = handle;
  }
  if (which.size() == 1) {
    take(r, params[which[0]], true);
  } else {
    handle->flat = r.empty({elements * ranks}, params[which[0]].whole->dtype, Category::temporary);
    r.label(handle->flat, "ZeRO-3 all-gather");
    r.set_reason(handle->flat, "until all parameters that were fetched with it are needed");
  }
  TensorList copies;
  for (std::size_t i : which) copies.push_back(from_host(r, params[i]));
  handle->params = std::move(which);
}

/// AllGatherCoalescedHandle.wait
void ZeroCoordinator::complete_gather(Run& r, ZeroGather& handle) {
  if (handle.complete) return;
  handle.complete = true;
  ScopedValue<std::int32_t> stream(r.stream, overlap ? allgather_stream : 0);
  for (std::size_t i : handle.params) {
    if (handle.params.size() > 1) take(r, params[i], false);
    params[i].available = true;
  }
}

void ZeroCoordinator::take(Run& r, ZeroParam& p, bool padded) {
  p.whole->storage->bytes = padded ? bytes_of(p.whole->dtype, p.shard_numel * ranks).count : p.bytes;
  r.take_memory(p.whole, Category::parameter);
  r.set_reason(p.whole, p.persists ? "gathered parameter; small ones stay until the step" : "gathered parameter");
}

void ZeroCoordinator::release(Run& r, ZeroParam& p) {
  if (!p.available || !p.active.empty()) return;
  r.free_memory(p.whole);
  p.available = false;
  live_ -= p.numel;
}

void ZeroCoordinator::leave(Run& r, std::size_t m) {
  if (own[m].empty()) return;
  const std::set<std::size_t>& released = complete_ ? to_release(m) : (everything_ = {own[m].begin(), own[m].end()});
  for (std::size_t i : own[m]) {
    params[i].active.erase(identity[m]);
    if (released.count(i)) release(r, params[i]);
  }
}

/// __params_to_release, which DeepSpeed computes once per module and place in the trace.
const std::set<std::size_t>& ZeroCoordinator::to_release(std::size_t m) {
  auto [it, fresh] = released_.try_emplace({identity[m], step_});
  if (!fresh) return it->second;
  for (std::size_t i : own[m])
    if (!params[i].persists && params[i].fetched_for <= step_) it->second.insert(i);
  std::int64_t elements = 0;
  for (auto s = static_cast<std::size_t>(step_);
       s < order_.size() && elements < max_reuse_distance && !it->second.empty(); ++s)
    for (std::size_t i : own[order_[s]]) {
      it->second.erase(i);
      elements += params[i].numel;
    }
  return it->second;
}

void ZeroCoordinator::backward_over(Run& r, std::size_t m) {
  const auto at = std::find(running_backward_.begin(), running_backward_.end(), m);
  if (at != running_backward_.end()) running_backward_.erase(at);
  leave(r, m);
}

void ZeroCoordinator::release_leftovers(Run& r) {
  while (!running_backward_.empty()) {
    const std::size_t m = running_backward_.back();
    running_backward_.pop_back();
    for (std::size_t i : own[m]) {
      params[i].active.erase(identity[m]);
      if (!params[i].persists) release(r, params[i]);
    }
  }
}

void ZeroCoordinator::release_all(Run& r) {
  for (ZeroParam& p : params) {
    if (p.under_way) complete_gather(r, *p.under_way);
    p.under_way.reset();
    p.active.clear();
    release(r, p);
  }
}

void ZeroCoordinator::gather_persisting(Run& r) {
  TensorList copies;
  for (const ZeroParam& p : params)
    if (p.persists) copies.push_back(from_host(r, p));
  for (ZeroParam& p : params)
    if (p.persists && !p.available) {
      take(r, p, true);
      p.available = true;
    }
}

void ZeroCoordinator::gather_each(Run& r) {
  for (ZeroParam& p : params)
    if (p.trains) {
      Tensor copy = from_host(r, p);
      take(r, p, true);
      copy.reset();
      p.available = true;
      release(r, p);
    }
  live_ = 0;
}

}  // namespace memplan
