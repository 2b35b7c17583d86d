// DistributedDataParallel: gradient buckets beside the gradients (or under them), broadcasts of buffers.
#include <fmt/format.h>

#include <deque>
#include <unordered_map>

#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/runtime/torch/wrappers/wrapper.h"
#include "estimators/setup/field.h"

namespace memplan {

namespace {

using Indices = std::vector<std::size_t>;

/// compute_bucket_assignment_by_size: one open bucket per dtype, closed when it has reached its limit; the first bucket
/// takes the first limit, all others the last. `sorted`: by the smallest index, as where no order was given.
std::vector<Indices> assign_buckets(const TensorList& tensors, const std::vector<std::int64_t>& limits, bool sorted) {
  struct Open {
    DType dtype;
    Indices indices;
    std::int64_t bytes = 0;
    std::size_t limit = 0;
  };
  std::vector<Open> open;
  std::vector<Indices> buckets;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    auto it = std::find_if(open.begin(), open.end(), [&](const Open& o) { return o.dtype == tensors[i]->dtype; });
    if (it == open.end()) it = open.insert(open.end(), Open{tensors[i]->dtype, {}, 0, 0});
    it->indices.push_back(i);
    it->bytes = checked_add(it->bytes, tensors[i]->bytes().count);
    if (it->bytes < limits[it->limit]) continue;
    buckets.push_back(std::move(it->indices));
    it->indices.clear();
    it->bytes = 0;
    if (it->limit + 1 < limits.size()) ++it->limit;
  }
  for (Open& o : open)
    if (!o.indices.empty()) buckets.push_back(std::move(o.indices));
  if (sorted)
    std::sort(buckets.begin(), buckets.end(), [](const Indices& a, const Indices& b) { return a.front() < b.front(); });
  return buckets;
}

/// dist._broadcast_coalesced: flat copies of buckets of tensors, two of them under way at a time.
void broadcast_coalesced(Run& r, const TensorList& tensors) {
  if (tensors.empty()) return;
  std::deque<Tensor> in_flight;
  for (const Indices& bucket : assign_buckets(tensors, {r.profile.ddp.broadcast_bucket}, true)) {
    if (in_flight.size() >= 2) in_flight.pop_front();
    std::int64_t elements = 0;
    for (std::size_t i : bucket) elements = checked_add(elements, tensors[i]->numel());
    // A bucket of one tensor is sent as it is.
    in_flight.push_back(bucket.size() == 1 ? tensors[bucket[0]]
                                           : r.empty({elements}, tensors[bucket[0]]->dtype, Category::temporary));
  }
  while (!in_flight.empty()) in_flight.pop_front();
}

/// Gradients side by side, in a tensor that lives for ever or, where buckets are lazy, during a backward pass.
struct Bucket {
  std::int64_t elements = 0;
  DType dtype = DType::float32;
  Tensor flat;
};

class Ddp : public ModelWrapper {
 public:
  Ddp(Run& r, const Tape& tape, const ParallelSetup& setup, const Environment& env, const TensorList& trainable)
      : setup_(setup), parameters_(trainable) {
    if (setup.lazy_buckets && !r.profile.ddp.lazy_buckets)
      fail(ErrorKind::usage, fmt::format("{} has no lazy_bucket_allocation", r.profile.name()),
           setting(Field::lazy_buckets), "leave it out, or use " + setting(Field::torch, "2.15"));
    r.begin_op("DistributedDataParallel");
    for (ValueId id : tape.buffers) {
      const Value& v = env.values[static_cast<std::size_t>(id.index)];
      if (v.is_tensor() && !v.tensor()->on_host) buffers_.push_back(v.tensor());
    }
    TensorList states;
    for (ValueId id : tape.parameters) {
      const Value& v = env.values[static_cast<std::size_t>(id.index)];
      const auto same = [&](const Tensor& t) { return t.get() == v.tensor().get(); };
      if (v.is_tensor() && std::none_of(states.begin(), states.end(), same)) states.push_back(v.tensor());
    }
    states.insert(states.end(), buffers_.begin(), buffers_.end());
    broadcast_coalesced(r, states);
    states.clear();
    for (std::size_t i = 0; i < parameters_.size(); ++i) index_[parameters_[i].get()] = i;
    // Until the order in which gradients come is known, one bucket per dtype holds them all.
    auto all = assign_buckets(parameters_, {INT64_MAX}, true);
    std::reverse(all.begin(), all.end());
    make_buckets(r, all);
  }

  void begin_forward(Run& r, Environment&, bool sync) override {
    if (r.grad_mode) rebuild(r);
    // Within no_sync() nothing is sent after the first such forward (require_forward_param_sync).
    if (synced_before_) {
      r.begin_op("DDP: broadcast of buffers");
      broadcast_coalesced(r, buffers_);
    }
    sync_ = sync && r.grad_mode;
    synced_before_ = sync_;
  }

  void accumulated(Run& r, TensorBody& leaf) override {
    const auto found = index_.find(&leaf);
    if (!sync_ || found == index_.end()) return;
    const std::size_t i = found->second;
    if (!rebuilt_) ready_.push_back(i);
    if (setup_.lazy_buckets) take_bucket(r, place_[i].first);
    if (!setup_.gradient_as_bucket_view) return;
    const Tensor& bucket = buckets_[place_[i].first].flat;
    if (leaf.grad->storage.get() == bucket->storage.get()) return;
    Tensor view = r.alias(bucket, leaf.sizes, leaf.strides, place_[i].second);
    leaf.grad = std::move(view);
  }

  void finished(Run&) override {
    if (!setup_.lazy_buckets) return;
    for (Bucket& bucket : buckets_) bucket.flat.reset();
  }

  void set_sync(bool sync) override { sync_ = sync; }

  /// The last micro-batch's backward is the one outside of no_sync(): by then every gradient has come.
  void reduce_gradients(Run& r) override {
    sync_ = true;
    for (const Tensor& p : parameters_)
      if (p->grad) accumulated(r, *p);
  }

 private:
  void make_buckets(Run& r, const std::vector<Indices>& buckets) {
    buckets_.clear();
    place_.resize(parameters_.size());
    for (const Indices& bucket : buckets) {
      std::int64_t elements = 0;
      for (std::size_t i : bucket) {
        place_[i] = {buckets_.size(), elements};
        elements = checked_add(elements, parameters_[i]->numel());
      }
      buckets_.push_back({elements, parameters_[bucket[0]]->dtype, {}});
      if (!setup_.lazy_buckets) take_bucket(r, buckets_.size() - 1);
    }
  }

  void take_bucket(Run& r, std::size_t index) {
    Bucket& bucket = buckets_[index];
    if (bucket.flat) return;
    bucket.flat = r.empty({bucket.elements}, bucket.dtype, Category::gradient);
    r.label(bucket.flat, fmt::format("DDP bucket {}", index));
    r.set_reason(bucket.flat, setup_.gradient_as_bucket_view
                                  ? "gradients are views of it"
                                  : "gradients are copied into it and summed over the ranks");
  }

  /// Once, at the first forward after a backward: buckets in the order in which the gradients came.
  void rebuild(Run& r) {
    if (rebuilt_ || ready_.empty()) return;
    rebuilt_ = true;
    r.begin_op("DDP: rebuild buckets");
    TensorList in_order;
    for (std::size_t i : ready_) in_order.push_back(parameters_[i]);
    const DdpConstants& ddp = r.profile.ddp;
    const std::int64_t cap = setup_.bucket_cap_mib.value_or(ddp.default_bucket_mib) << 20;
    // bucket_bytes_cap_default: only a program that leaves the cap out has a small first bucket.
    const std::int64_t first = setup_.bucket_cap_mib ? cap : ddp.first_bucket;
    auto buckets = assign_buckets(in_order, {first, cap}, false);
    for (Indices& bucket : buckets)
      for (std::size_t& i : bucket) i = ready_[i];
    {
      // sync_bucket_indices sends the layout through the device: all indices and their count, then the buckets' sizes.
      Tensor indices = r.empty({static_cast<std::int64_t>(ready_.size()) + 1}, DType::int32, Category::temporary);
      Tensor sizes = r.empty({static_cast<std::int64_t>(buckets.size())}, DType::int32, Category::temporary);
    }
    make_buckets(r, buckets);
  }

  const ParallelSetup setup_;
  TensorList parameters_, buffers_;
  std::vector<Bucket> buckets_;
  std::unordered_map<const TensorBody*, std::size_t> index_;
  std::vector<std::pair<std::size_t, std::int64_t>> place_;  ///< per parameter: bucket, offset in elements
  Indices ready_;
  bool rebuilt_ = false, sync_ = true, synced_before_ = true;
};

}  // namespace

/// torch.nn.parallel.DistributedDataParallel (torch/nn/parallel/distributed.py, csrc/distributed/c10d/reducer.cpp of
/// PyTorch 2.11) around a model that is on the device; null with one rank.
std::unique_ptr<ModelWrapper> wrap_ddp(const WrapContext& c) {
  if (c.ranks.data * c.ranks.context < 2) return nullptr;
  return std::make_unique<Ddp>(c.run, c.tape, c.ranks, c.env, c.trainable);
}

}  // namespace memplan
