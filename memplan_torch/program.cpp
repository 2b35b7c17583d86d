#include "memplan_torch/program.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "estimators/transforms/module_order.h"
#include "memplan_torch/calls.h"
#include "memplan_torch/checkpoint.h"
#include "memplan_torch/commands.h"
#include "memplan_torch/optimizers.h"

namespace memplan::torch_side {

namespace {

bool is_amp(Precision p) { return p == Precision::amp_bf16 || p == Precision::amp_fp16; }
bool is_pure(Precision p) { return p == Precision::bf16 || p == Precision::fp16; }
c10::ScalarType half_of(Precision p) {
  return p == Precision::amp_bf16 || p == Precision::bf16 ? at::kBFloat16 : at::kHalf;
}

void add_floating(const c10::IValue& v, std::vector<at::Tensor>& found) {
  if (v.isTensor() && v.toTensor().defined() && v.toTensor().is_floating_point()) found.push_back(v.toTensor());
  if (v.isList())
    for (const c10::IValue& item : v.toListRef()) add_floating(item, found);
}

/// The leaves that get gradients from a tensor, by their nodes.
std::set<const torch::autograd::Node*> trained_by(const at::Tensor& t) {
  std::set<const torch::autograd::Node*> seen, leaves;
  std::vector<const torch::autograd::Node*> open{t.grad_fn().get()};
  while (!open.empty()) {
    const torch::autograd::Node* node = open.back();
    open.pop_back();
    if (!node || !seen.insert(node).second) continue;
    if (dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) leaves.insert(node);
    for (const torch::autograd::Edge& e : node->next_edges()) open.push_back(e.function.get());
  }
  return leaves;
}

/// torch.nn.attention.sdpa_kernel(backend): the others are switched off.
void choose_attention(AttentionBackend b) {
  if (b == AttentionBackend::automatic) return;
  at::Context& c = at::globalContext();
  c.setSDPUseMath(b == AttentionBackend::math);
  c.setSDPUseFlash(b == AttentionBackend::flash);
  c.setSDPUseMemEfficient(b == AttentionBackend::efficient);
  c.setSDPUseCuDNN(b == AttentionBackend::cudnn);
}

class Program {
 public:
  Program(const DryRunRequest& request, int device, Recorder& recorder)
      : tape_(request.tape),
        setup_(request.setup),
        request_(request),
        target_of_(request.target),
        log_(recorder),
        names_(tape_.values.size()) {
    settings_.device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
    if (is_pure(setup_.precision)) settings_.model_dtype = half_of(setup_.precision);
  }

  void run() {
    choose_attention(setup_.attention);
    log_.enter(0, "set-up");
    move_model();
    const bool training = setup_.mode == Mode::training;
    for (const DryRunTensor& t : request_.kv_cache)
      cache_.push_back(at::empty(t.sizes, at::TensorOptions().dtype(scalar_type(t.dtype)).device(settings_.device)));
    if (training) make_optimizers();
    for (int s = 1; s <= setup_.steps; ++s) {
      training ? train(s) : setup_.keep_loss_history ? evaluate(s) : infer(s);
      if (setup_.empty_cache) log_.empty_cache();
    }
  }

 private:
  at::Tensor on_device(const std::vector<std::int64_t>& sizes, c10::ScalarType dtype) const {
    // With model.to(memory_format=torch.channels_last) tensors of four dimensions lie in that order, batches too.
    const auto format =
        setup_.channels_last && sizes.size() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    return at::empty(sizes, at::TensorOptions().dtype(dtype).device(settings_.device), format).zero_();
  }

  c10::ScalarType converted(DType d) const {
    const c10::ScalarType t = scalar_type(d);
    return is_pure(setup_.precision) && c10::isFloatingType(t) ? half_of(setup_.precision) : t;
  }

  c10::IValue& name(ValueId id) { return names_[static_cast<std::size_t>(id.index)]; }
  const TapeValue& value(ValueId id) const { return tape_.values[static_cast<std::size_t>(id.index)]; }

  /// model.to("cuda"): children before their parent, parameters before buffers.
  void move_model() {
    const auto recurrent = flattened_calls();
    const auto order = module_order(tape_);
    const auto last_of = [&](const std::vector<ValueId>& group) {
      for (std::size_t i = order.size(); i-- > 0;)
        if (std::find(group.begin(), group.end(), order[i]) != group.end()) return order[i];
      return ValueId{};
    };
    for (ValueId id : order) {
      const TapeValue& v = value(id);
      if (v.same_storage_as.valid() && name(v.same_storage_as).isTensor()) {
        name(id) = name(v.same_storage_as);
        continue;
      }
      const c10::ScalarType dtype = v.keeps_dtype ? scalar_type(v.dtype) : converted(v.dtype);
      at::Tensor t = v.on_host ? at::zeros(v.sizes, at::TensorOptions().dtype(dtype)) : on_device(v.sizes, dtype);
      if (v.on_host && v.number) t.fill_(*v.number);
      if (v.kind == ValueKind::parameter && v.requires_grad && t.is_floating_point()) t.requires_grad_(true);
      name(id) = t;
      for (const auto& [call, group] : recurrent)
        if (last_of(group) == id) flatten(*call, group);
    }
    // The optimizer walks the parameters in registration order, not in the order in which they were moved.
    for (ValueId id : tape_.parameters) {
      if (!name(id).isTensor()) continue;
      const at::Tensor& t = name(id).toTensor();
      if (t.requires_grad() &&
          std::none_of(trainable_.begin(), trainable_.end(), [&](const at::Tensor& other) { return other.is_same(t); }))
        trainable_.push_back(t);
    }
  }

  void make_optimizers() {
    if (setup_.offload.optimizer) {
      if (setup_.optimizer.kind != OptimizerKind::none) optimizer_ = make_host_optimizer(trainable_);
    } else if (setup_.optimizer.kind == OptimizerKind::muon) {
      Tensors matrices, others;
      for (const at::Tensor& p : trainable_) {
        const auto& chosen = request_.hidden_matrices;
        const bool takes = std::any_of(chosen.begin(), chosen.end(), [&](ValueId id) {
          return name(id).isTensor() && name(id).toTensor().is_same(p);
        });
        (takes ? matrices : others).push_back(p);
      }
      optimizer_ = make_muon(setup_.optimizer, matrices, others);
    } else {
      optimizer_ = make_optimizer(setup_.optimizer, trainable_);
    }
  }

  std::vector<std::pair<const Call*, std::vector<ValueId>>> flattened_calls() const {
    std::vector<std::pair<const Call*, std::vector<ValueId>>> out;
    for (const auto& [group, biases] : flattened_groups(tape_))
      for (const Call& call : tape_.calls) {
        const auto* list = call.args.size() > 2 ? std::get_if<Arg::List>(&call.args[2].value) : nullptr;
        if (!list || list->size() != group.size() || call.op.find("::") == std::string::npos) continue;
        const bool same = std::equal(list->begin(), list->end(), group.begin(), [](const Arg& a, ValueId id) {
          const auto* v = std::get_if<ValueId>(&a.value);
          return v && *v == id;
        });
        if (!same) continue;
        out.emplace_back(&call, group);
        break;
      }
    return out;
  }

  /// RNNBase.flatten_parameters, which torch.backends.cudnn.is_acceptable keeps from bfloat16.
  void flatten(const Call& call, const std::vector<ValueId>& group) {
    if (setup_.precision == Precision::bf16) return;
    c10::NoGradGuard no_grad;
    std::vector<at::Tensor> weights;
    for (ValueId id : group) weights.push_back(name(id).toTensor());
    const auto flag = [&](std::size_t i) {
      const bool* b = i < call.args.size() ? std::get_if<bool>(&call.args[i].value) : nullptr;
      return b && *b;
    };
    const auto* layers = call.args.size() > 4 ? std::get_if<std::int64_t>(&call.args[4].value) : nullptr;
    const bool biases = flag(3);
    // cuDNN's numbers: RELU, TANH, LSTM, GRU.
    const std::int64_t mode = call.op == "aten::lstm.input"       ? 2
                              : call.op == "aten::gru.input"      ? 3
                              : call.op == "aten::rnn_tanh.input" ? 1
                                                                  : 0;
    at::_cudnn_rnn_flatten_weight(weights, biases ? 4 : 2, weights[0].size(1), mode, weights[1].size(1), 0,
                                  layers ? *layers : 1, flag(8), flag(7));
  }

  /// x[i] = host_x[i].to("cuda"): the name's old tensor goes when the new one is bound.
  void move_batch(int step) {
    log_.enter(step, "data");
    batch_.resize(tape_.inputs.size());
    for (std::size_t i = 0; i < tape_.inputs.size(); ++i) {
      const TapeValue& v = value(tape_.inputs[i]);
      if (v.number) {
        name(tape_.inputs[i]) = *v.number;
        continue;
      }
      batch_[i] = on_device(v.sizes, converted(v.dtype));
    }
  }

  void forward(int step) {
    log_.enter(step, "forward");
    for (std::size_t i = 0; i < tape_.inputs.size(); ++i)
      if (!value(tape_.inputs[i]).number) name(tape_.inputs[i]) = batch_[i];
    at::autocast::set_autocast_dtype(at::kCUDA, half_of(setup_.precision));
    at::autocast::set_autocast_enabled(at::kCUDA, is_amp(setup_.precision));
    run_tape(tape_, names_, settings_, log_);
    std::vector<c10::IValue> fresh;
    for (ValueId id : tape_.outputs) fresh.push_back(id.valid() ? name(id) : c10::IValue());
    for (ValueId id : tape_.inputs) name(id) = c10::IValue();
    for (std::size_t i = 0; i < tape_.values.size(); ++i)
      if (tape_.values[i].kind == ValueKind::computed) names_[i] = c10::IValue();
    output_ = std::move(fresh);
  }

  void end_autocast() {
    if (!is_amp(setup_.precision)) return;
    at::autocast::set_autocast_enabled(at::kCUDA, false);
    at::autocast::clear_cache();
  }

  /// transformers/loss/loss_utils.py, ForCausalLMLoss with num_items_in_batch.
  at::Tensor causal_lm_loss(const at::Tensor& y) {
    at::Tensor logits = y.to(at::kFloat);
    at::Tensor labels = at::constant_pad_nd(target_, {0, 1}, -100);
    at::Tensor next = labels.slice(-1, 1).contiguous();
    logits = logits.flatten(0, -2);
    next = next.flatten();
    const at::Tensor loss = at::cross_entropy_loss(logits, next, {}, at::Reduction::Sum);
    if (!tokens_.defined()) tokens_ = at::empty({}, target_.options());
    return loss / tokens_;
  }

  at::Tensor compute_loss() {
    std::vector<at::Tensor> found;
    for (const c10::IValue& v : output_) add_floating(v, found);
    if (found.empty())
      throw Refusal("input", "the model has no floating output to take a loss of", {}, "use --mode inference");
    const at::Tensor y = found[0];
    Loss loss = setup_.loss;
    // A loss that the model returns beside its prediction, as estimators/runtime/torch/step/loss.h has it.
    std::optional<std::set<const torch::autograd::Node*>> needed;
    for (std::size_t i = 1; i < found.size() && loss == Loss::automatic && y.dim() > 0; ++i) {
      if (found[i].dim() != 0 || !found[i].requires_grad()) continue;
      if (!needed) needed = trained_by(y);
      if (std::ranges::includes(trained_by(found[i]), *needed)) return found[i];
    }
    if (loss == Loss::automatic) loss = y.dim() >= 2 ? Loss::cross_entropy : Loss::sum;
    if (y.dim() == 0) return y;
    if (loss == Loss::sum) return y.sum();
    if (loss == Loss::mse) return at::mse_loss(y, target_);
    if (loss == Loss::causal_lm) return causal_lm_loss(y);
    if (y.dim() == 2 || y.dim() == 4) return at::cross_entropy_loss(y, target_);
    return at::cross_entropy_loss(y.flatten(0, -2), target_.flatten());
  }

  void train(int step) {
    const bool scaled_loss = setup_.precision == Precision::amp_fp16;
    for (std::int64_t k = 0; k < setup_.accumulate; ++k) {
      move_batch(step);
      if (target_of_) target_ = on_device(target_of_->sizes, scalar_type(target_of_->dtype));
      if (k == 0 && setup_.zero_grad == ZeroGrad::begin_set_none) zero_grad();
      {
        const SaveOnHost offload(setup_.offload.activations);
        forward(step);
        log_.enter(step, "loss");
        at::Tensor fresh = compute_loss();
        if (setup_.loss == Loss::causal_lm) output_.clear();  // taken where the model returns
        if (setup_.accumulate > 1) fresh = fresh / static_cast<double>(setup_.accumulate);
        loss_ = std::move(fresh);
      }
      if (setup_.keep_loss_history) losses_.push_back(loss_);
      end_autocast();
      const at::Tensor scaled = scaled_loss ? scaler_.scale(loss_) : loss_;
      if (k == 0 && setup_.zero_grad == ZeroGrad::before_backward) zero_grad();
      log_.enter(step, "backward");
      torch::autograd::backward({scaled}, {});
    }
    log_.enter(step, "optimizer");
    if (scaled_loss && optimizer_) scaler_.unscale(trainable_);
    if (setup_.clip_grad_norm) {
      log_.enter(step, "clipping");
      clip_grad_norm(trainable_);
      log_.enter(step, "optimizer");
    }
    if (optimizer_ && (!scaled_loss || scaler_.all_finite())) optimizer_->step();
    if (scaled_loss) scaler_.update();
    if (setup_.zero_grad == ZeroGrad::end_set_none) zero_grad();
  }

  /// An evaluation that forgets torch.no_grad() and keeps every loss.
  void evaluate(int step) {
    move_batch(step);
    if (target_of_) target_ = on_device(target_of_->sizes, scalar_type(target_of_->dtype));
    forward(step);
    log_.enter(step, "loss");
    loss_ = compute_loss();
    losses_.push_back(loss_);
    end_autocast();
  }

  void infer(int step) {
    c10::NoGradGuard no_grad;
    move_batch(step);
    forward(step);
    end_autocast();
  }

  void zero_grad() {
    for (const at::Tensor& p : trainable_) p.mutable_grad().reset();
  }

  const Tape& tape_;
  const TrainingSetup& setup_;
  const DryRunRequest& request_;
  const std::optional<DryRunTensor>& target_of_;
  Recorder& log_;
  CallSettings settings_;
  Names names_;
  Tensors trainable_, batch_, cache_;
  std::vector<c10::IValue> output_;
  at::Tensor target_, loss_, tokens_;
  Tensors losses_;
  std::unique_ptr<Optimizer> optimizer_;
  GradScaler scaler_;
};

}  // namespace

void run_program(const DryRunRequest& request, int device, Recorder& recorder) {
  // The program's names outlive the recording: their memory stays taken in it, as at the end of the script.
  auto* program = new Program(request, device, recorder);
  program->run();
  recorder.finish();
}

}  // namespace memplan::torch_side
