// Megatron-LM's data parallelism and mixed precision (megatron/core/distributed/param_and_grad_buffer.py,
// optimizer/param_layout.py, optimizer/optimizer.py and distrib_optimizer.py), as documented in docs/parallelism.md:
// gradients are added up in one buffer, the optimizer works on weights of its own.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "estimators/runtime/torch/wrappers/wrapper.h"
#include "estimators/setup/strategies.h"

namespace memplan {

namespace {

std::int64_t up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// One buffer: parameters of one dtype, in the order of the backward pass.
struct Buffer {
  DType dtype = DType::float32;
  std::vector<std::pair<Tensor, std::int64_t>> parameters;  ///< with the first element
  std::int64_t elements = 0;
  Tensor weights, gradients;
};

/// What the optimizer updates for one parameter: the parameter itself where it is fp32, else a copy.
struct Main {
  Tensor weight;
  std::size_t buffer = 0;
  std::int64_t first = 0;  ///< element of the buffer
};

class Megatron : public ModelWrapper {
 public:
  Megatron(Run& r, const ParallelSetup& setup, TensorList& trainable)
      : ranks_(setup.data * setup.context), shares_(strategy_of(setup).state), parameters_(trainable) {
    r.begin_op("Megatron-LM: parameter and gradient buffers");
    lay_out();
    for (Buffer& b : buffers_) make(r, b);
    r.begin_op("Megatron-LM: optimizer's weights");
    for (std::size_t i = 0; i < buffers_.size(); ++i) make_mains(r, i);
    trainable.clear();
    // Parameters lie in the buffer from the last to the first; the optimizer has them in the model's order.
    for (auto m = mains_.rbegin(); m != mains_.rend(); ++m) trainable.push_back(m->weight);
  }

  /// The post hook adds the gradient to main_grad and lets it go.
  void accumulated(Run&, TensorBody& leaf) override { leaf.grad.reset(); }

  void begin_backward(Run&) override { drop_gradients(); }

  /// Gradients that were added up in fp32 are those of the optimizer; others are copied when it steps.
  void finished(Run& r) override { hand_over(r, false); }
  void begin_optimizer(Run& r) override {
    r.begin_op("Megatron-LM: main gradients");
    hand_over(r, true);
  }

 private:
  void lay_out() {
    for (auto it = parameters_.rbegin(); it != parameters_.rend(); ++it) {
      auto b = std::find_if(buffers_.begin(), buffers_.end(),
                            [&](const Buffer& known) { return known.dtype == (*it)->dtype; });
      if (b == buffers_.end()) b = buffers_.insert(buffers_.end(), Buffer{(*it)->dtype, {}, 0, {}, {}});
      // With the distributed optimizer every parameter begins at a multiple of 64 elements, and the buffer ends at one
      // of the ranks and of 128.
      if (shares_) b->elements = up(b->elements, 64);
      b->parameters.emplace_back(*it, b->elements);
      b->elements = checked_add(b->elements, (*it)->numel());
    }
    if (shares_)
      for (Buffer& b : buffers_) b.elements = up(b.elements, std::lcm(ranks_, std::int64_t{128}));
  }

  void make(Run& r, Buffer& b) {
    if (shares_) {
      b.weights = r.empty({b.elements}, b.dtype, Category::parameter);
      r.label(b.weights, "Megatron parameter buffer");
      r.set_reason(b.weights, "parameters are views of it");
    }
    // accumulate_allreduce_grads_in_fp32 is set for bfloat16 only.
    b.gradients =
        r.empty({b.elements}, b.dtype == DType::float16 ? DType::float16 : DType::float32, Category::gradient);
    r.label(b.gradients, "Megatron main_grad buffer");
    r.set_reason(b.gradients, "gradients are added up in it, for the whole run");
    if (!shares_) return;
    for (const auto& [p, first] : b.parameters) {
      p->storage = b.weights->storage;
      p->offset = first;
    }
  }

  void make_mains(Run& r, std::size_t at) {
    Buffer& b = buffers_[at];
    const std::int64_t end = shares_ ? b.elements / ranks_ : b.elements;
    for (const auto& [p, first] : b.parameters) {
      const std::int64_t count = std::min(end - first, p->numel());
      if (count <= 0) continue;
      Main m{{}, at, first};
      if (b.dtype == DType::float32) {
        m.weight = count == p->numel() ? p : r.alias(p, {count}, {1}, first);
      } else {
        if (shares_) Tensor same_dtype = r.empty({count}, b.dtype);  // shard_model_param.clone().float()
        m.weight = shares_ ? r.empty({count}, DType::float32, Category::optimizer_state)
                           : r.empty(p->sizes, DType::float32, Category::optimizer_state);
        if (p->name >= 0) r.label(m.weight, r.schedule.names[static_cast<std::size_t>(p->name)] + ".main_param");
        r.set_reason(m.weight, shares_ && ranks_ > 1 ? fmt::format("fp32 weights of the optimizer, 1/{}", ranks_)
                                                     : std::string("fp32 weights of the optimizer"));
      }
      m.weight->requires_grad_leaf = true;
      mains_.push_back(std::move(m));
    }
  }

  void hand_over(Run& r, bool copies) {
    for (Main& m : mains_) {
      const Tensor& all = buffers_[m.buffer].gradients;
      if (m.weight->grad) continue;
      if (all->dtype == DType::float32) {
        m.weight->grad = r.alias(all, m.weight->sizes, m.weight->strides, m.first);
      } else if (copies) {
        m.weight->grad = r.empty(m.weight->sizes, DType::float32, Category::gradient);
        r.set_reason(m.weight->grad, "fp32 copy for the optimizer, until zero_grad");
      }
    }
  }

  /// fp32 parameters are the optimizer's own: what the last pass handed over must not meet the next gradients.
  void drop_gradients() {
    for (const Tensor& p : parameters_) p->grad.reset();
  }

  const std::int64_t ranks_;
  const bool shares_;
  TensorList parameters_;
  std::vector<Buffer> buffers_;
  std::vector<Main> mains_;
};

}  // namespace

/// Megatron-LM's DistributedDataParallel and mixed-precision optimizer
/// (megatron/core/distributed/param_and_grad_buffer.py, megatron/core/optimizer) around a model that is on the device.
/// `trainable` becomes what the optimizer updates: fp32 weights, whole or, with the distributed optimizer, the first
/// rank's part of them.
std::unique_ptr<ModelWrapper> wrap_megatron(const WrapContext& c) {
  return std::make_unique<Megatron>(c.run, c.ranks, c.trainable);
}

}  // namespace memplan
