// DeepSpeedZeroOptimizer (deepspeed/runtime/zero/stage_1_and_2.py of DeepSpeed 0.19.8): whole weights on every rank as
// views of one flat buffer, one partition of fp32 weights and optimizer state, and gradients that go through a bucket.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "estimators/runtime/torch/wrappers/zero.h"
#include "estimators/setup/setup.h"

namespace memplan {

namespace {

constexpr std::int32_t reduction_stream = 1;

/// A parameter in the flat buffer.
struct Place {
  Tensor parameter;
  std::int64_t begin = 0;  ///< elements before it
  std::int64_t end() const { return begin + parameter->numel(); }
};

class Zero12 : public Zero {
 public:
  explicit Zero12(const WrapContext& c) : Zero(c) {
    Run& r = c.run;
    const Tape& tape = c.tape;
    const Environment& env = c.env;
    TensorList& trainable = c.trainable;
    r.begin_op("DeepSpeedZeroOptimizer");
    for (const Tensor& p : trainable) {
      place_of_[p.get()] = places_.size();
      places_.push_back({p, elements_});
      elements_ = checked_add(elements_, p->numel());
      largest_ = std::max(largest_, p->numel());
      dtype_ = p->dtype;
    }
    if (places_.empty()) return;
    const std::int64_t alignment = 2 * ranks_;  // nccl_start_alignment_factor
    padded_ = (elements_ + alignment - 1) / alignment * alignment;
    partition_ = padded_ / ranks_;
    choose_rank();
    flatten(r, tape, env);
    make_master(r, trainable);
    if (optimizer_on_host_) {
      transfer_ = r.empty({largest_}, dtype_, Category::temporary);  // temp_grad_buffer_for_gpu_offload
      r.label(transfer_, "ZeRO-Offload: buffer of the largest gradient");
      r.set_reason(transfer_, "temp_grad_buffer_for_gpu_offload, kept for the whole run");
    }
  }

  /// process_gradients. Stage 1 reduces when the backward pass is over, unless communication overlaps.
  void accumulated(Run& r, TensorBody& leaf) override {
    const auto it = place_of_.find(&leaf);
    if (it == place_of_.end()) return;
    setup_buckets(r);
    if (stage_ == 2 || overlap_) into_bucket(r, it->second);
  }

  void finished(Run&) override {}

  void end_backward(Run& r) override {
    r.begin_op("ZeRO: reduce_gradients");
    if (!places_.empty()) {
      setup_buckets(r);
      if (stage_ == 1 && !overlap_)
        for (std::size_t i = 0; i < places_.size(); ++i)
          if (places_[i].parameter->grad) into_bucket(r, i);
      reduce(r);
      if (!optimizer_on_host_) averaged_gradients(r);
      buckets_.clear();
      for (const Place& p : places_) p.parameter->grad.reset();
    }
    Zero::end_backward(r);
  }

  /// step(): norms in float64, then the partition's gradients in fp32, from which the optimizer takes them.
  void begin_optimizer(Run& r) override {
    r.begin_op("ZeRO: gradients of the partition in fp32");
    if (!optimizer_on_host_) {
      for (const Tensor& g : averaged_) norm_of(r, g->numel());
      keep_norm(r);
      if (!places_.empty()) {
        Tensor flat = flattened(r, partition_, dtype_, averaged_.size());
        if (flat && dtype_ == DType::float32)
          master_->grad = flat;
        else
          master_->grad =
              dtype_ == DType::float32 ? averaged_.front() : r.empty({partition_}, DType::float32, Category::gradient);
        r.label(master_->grad, "ZeRO fp32 gradient partition");
        r.set_category(master_->grad, Category::gradient);
      }
      averaged_.clear();
    } else {
      keep_norm(r);
      norms_.clear();
    }
  }
  bool end_optimizer(Run&) override {
    if (master_) master_->grad.reset();
    return false;
  }

 private:
  /// Parameters that the rank's partition cuts through count whole in grads_in_partition: ranks differ, the heaviest
  /// one is run. Ranks may be a million, so only those are looked at where a parameter begins or has ended.
  void choose_rank() {
    std::map<std::int64_t, std::int64_t> more;  // elements that count from this rank on
    for (const Place& p : places_) {
      if (p.end() == p.begin) continue;
      more[p.begin / partition_] += p.parameter->numel();
      more[(p.end() - 1) / partition_ + 1] -= p.parameter->numel();
    }
    std::int64_t whole = 0;
    for (const auto& [rank, elements] : more) {
      whole += elements;
      if (whole > owned_) owned_ = whole, rank_ = rank;
    }
  }
  std::int64_t overlap_of(const Place& p, std::int64_t rank) const {
    return std::min(p.end(), (rank + 1) * partition_) - std::max(p.begin, rank * partition_);
  }
  bool owned(const Place& p) const { return overlap_of(p, rank_) > 0; }

  /// All parameters side by side; on the host where the device has no room for both, and then one element stands for
  /// each.
  void flatten(Run& r, const Tape& tape, const Environment& env) {
    r.empty_cache();
    Bytes there = bytes_of(dtype_, elements_);
    for (ValueId id : tape.buffers) {
      const Value& v = env.values[static_cast<std::size_t>(id.index)];
      if (v.is_tensor() && !v.tensor()->on_host) there = there + v.tensor()->bytes();
    }
    const bool on_device =
        r.device.total.count == 0 || r.device.total.count - there.count >= bytes_of(dtype_, padded_).count;
    TensorList stand_ins;
    if (!on_device)
      for (const Place& p : places_) {
        r.free_memory(p.parameter);
        stand_ins.push_back(r.empty({1}, DType::float32, Category::temporary));
      }
    if (!on_device) r.empty_cache();
    Tensor flat;
    {
      Tensor padding =
          on_device && padded_ > elements_ ? r.empty({padded_ - elements_}, dtype_, Category::temporary) : Tensor();
      flat = r.empty({padded_}, dtype_, Category::parameter);
    }
    r.label(flat, "ZeRO flat parameters");
    r.set_reason(flat, "parameters, in one buffer");
    for (const Place& p : places_) {
      if (on_device) r.free_memory(p.parameter);
      p.parameter->storage = flat->storage;
      p.parameter->offset = p.begin;
    }
  }

  /// The fp32 weights of this rank: a clone of the partition in its dtype, then in fp32, on the host with offload.
  void make_master(Run& r, TensorList& trainable) {
    Tensor clone = r.empty({partition_}, dtype_, Category::temporary);
    if (optimizer_on_host_) {
      Tensor wide = dtype_ == DType::float32 ? Tensor() : r.empty({partition_}, DType::float32, Category::temporary);
      trainable.clear();
      return;
    }
    master_ = dtype_ == DType::float32 ? clone : r.empty({partition_}, DType::float32, Category::optimizer_state);
    clone.reset();
    r.set_category(master_, Category::optimizer_state);
    master_->requires_grad_leaf = true;
    r.label(master_, "ZeRO fp32 partition");
    r.set_reason(master_, fmt::format("fp32 weights of this rank, 1/{}", ranks_));
    trainable = {master_};
    Tensor zeros = r.empty({partition_}, DType::float32, Category::temporary);  // initialize_optimizer_states
  }

  /// contiguous_gradients: what gradients are copied into before they are reduced; two where communication overlaps.
  void setup_buckets(Run& r) {
    if (!buckets_.empty()) return;
    index_ = 0;
    filled_ = 0;
    for (int i = 0; i < (overlap_ ? 2 : 1); ++i) {
      Tensor bucket = r.empty({bucket_}, dtype_, Category::temporary);
      r.label(bucket, i == 0 ? "ZeRO reduce bucket" : "ZeRO second reduce bucket");
      r.set_reason(bucket, i == 0 ? "reduce_bucket_size elements, for the backward pass"
                                  : "overlap_comm: filled while the first one is reduced");
      buckets_.push_back(std::move(bucket));
    }
  }

  /// reduce_independent_p_g_buckets_and_remove_grads
  void into_bucket(Run& r, std::size_t i) {
    const Tensor& p = places_[i].parameter;
    if (filled_ + p->numel() > bucket_) {
      reduce(r);
      if (overlap_) index_ = 1 - index_;
    }
    // One that is larger than the bucket is reduced as it is.
    if (p->numel() <= bucket_) {
      Tensor view = r.alias(buckets_[static_cast<std::size_t>(index_)], p->sizes, p->strides, filled_);
      p->grad = std::move(view);
    }
    filled_ += p->numel();
    waiting_.push_back(i);
  }

  /// reduce_ipg_grads: the ranks' slices are flattened for one all-reduce, then this rank keeps its own gradients.
  void reduce(Run& r) {
    {
      ScopedValue<std::int32_t> stream(r.stream, overlap_ ? reduction_stream : 0);
      // Slices of neighbours that go to the same rank are one (average_tensor); a list is sent once it exceeds the
      // bucket's size.
      std::vector<std::int64_t> slices;
      std::int64_t last = -1;
      for (std::size_t i : waiting_) {
        const Place& p = places_[i];
        for (std::int64_t rank = p.begin / partition_; rank * partition_ < p.end(); ++rank) {
          if (rank == last)
            slices.back() += overlap_of(p, rank);
          else
            slices.push_back(overlap_of(p, rank));
          last = rank;
        }
      }
      std::int64_t elements = 0;
      std::size_t pieces = 0;
      for (std::size_t i = 0; i < slices.size(); ++i) {
        elements += slices[i];
        ++pieces;
        if (elements <= bucket_ && i + 1 < slices.size()) continue;
        Tensor flat = flattened(r, elements, dtype_, pieces);
        if (flat) r.label(flat, "ZeRO: gradients of a bucket, flattened for the all-reduce");
        elements = 0;
        pieces = 0;
      }
      for (std::size_t i : waiting_) {
        const Tensor& p = places_[i].parameter;
        if (owned(places_[i]))
          keep_gradient(r, i);
        else if (stage_ == 2)
          p->grad.reset();
      }
    }
    waiting_.clear();
    filled_ = 0;
  }

  /// copy_grads_in_partition
  void keep_gradient(Run& r, std::size_t i) {
    const Tensor& p = places_[i].parameter;
    if (optimizer_on_host_) {
      const std::int64_t mine = overlap_of(places_[i], rank_);
      Tensor norm = r.empty({}, DType::float64, Category::temporary);
      norm_of(r, mine);
      norms_.push_back(std::move(norm));
      Tensor wide = dtype_ == DType::float32 ? Tensor() : r.empty({mine}, DType::float32, Category::temporary);
      p->grad.reset();
      return;
    }
    if (!kept_) {
      kept_ = r.empty({owned_}, dtype_, Category::gradient);
      r.label(kept_, "ZeRO gradient partition");
      r.set_reason(kept_, "whole gradients of the parameters that this rank's partition touches");
      kept_filled_ = 0;
    }
    Tensor view = r.alias(kept_, p->sizes, p->strides, kept_filled_);
    kept_filled_ += p->numel();
    p->grad = std::move(view);
  }

  /// get_flat_partition: the partition as a list of views, with zeros where a gradient is missing and at the end.
  void averaged_gradients(Run& r) {
    std::int64_t filled = 0;
    for (const Place& p : places_) {
      if (!owned(p)) continue;
      Tensor grad = p.parameter->grad ? p.parameter->grad : r.empty(p.parameter->sizes, dtype_, Category::gradient);
      const std::int64_t mine = overlap_of(p, rank_);
      averaged_.push_back(r.alias(grad, {mine}, {1}, grad->offset));
      filled += mine;
    }
    if (filled < partition_) averaged_.push_back(r.empty({partition_ - filled}, dtype_, Category::gradient));
    kept_.reset();
  }

  std::vector<Place> places_;  ///< in registration order
  std::map<const TensorBody*, std::size_t> place_of_;
  std::int64_t elements_ = 0, padded_ = 0, partition_ = 1, largest_ = 0;
  std::int64_t rank_ = 0, owned_ = 0;
  Tensor master_, transfer_, kept_;
  TensorList buckets_, averaged_, norms_;
  std::vector<std::size_t> waiting_;
  std::int64_t filled_ = 0, kept_filled_ = 0;
  int index_ = 0;
};

}  // namespace

/// DeepSpeed's ZeRO stages 1 and 2 (stage_1_and_2.py of DeepSpeed 0.19.8) around a model that is on the device.
/// `trainable` becomes the rank's fp32 partition; nothing where the optimizer is on the host.
std::unique_ptr<ModelWrapper> wrap_zero12(const WrapContext& c) { return std::make_unique<Zero12>(c); }

}  // namespace memplan
