#include "estimators/frontends/onnx/fx_rewrites.h"

#include <algorithm>
#include <iterator>

#include "estimators/setup/setup.h"

namespace memplan::onnx_format {

namespace {

struct Outputs {
  std::string_view op;
  int count;
};

// aten/src/ATen/native/native_functions.yaml of PyTorch 2.11: ops that return several tensors.
constexpr Outputs several[] = {
    {"aten::native_dropout", 2},
    {"aten::_native_batch_norm_legit_functional", 5},
    {"aten::_native_batch_norm_legit", 3},
    {"aten::_native_batch_norm_legit.no_stats", 3},
    {"aten::_native_batch_norm_legit_no_training", 3},
    {"aten::native_batch_norm", 3},
    {"aten::cudnn_batch_norm", 4},
    {"aten::_batch_norm_with_update_functional", 5},
    {"aten::native_layer_norm", 3},
    {"aten::native_group_norm", 3},
    {"aten::_fused_rms_norm", 2},
    {"aten::max.dim", 2},
    {"aten::min.dim", 2},
    {"aten::median.dim", 2},
    {"aten::mode", 2},
    {"aten::kthvalue", 2},
    {"aten::topk", 2},
    {"aten::sort", 2},
    {"aten::sort.stable", 2},
    {"aten::cummax", 2},
    {"aten::cummin", 2},
    {"aten::aminmax", 2},
    {"aten::var_mean.correction", 2},
    {"aten::var_mean.dim", 2},
    {"aten::var_mean", 2},
    {"aten::std_mean.correction", 2},
    {"aten::max_pool2d_with_indices", 2},
    {"aten::max_pool3d_with_indices", 2},
    {"aten::max_pool1d_with_indices", 2},
    {"aten::adaptive_max_pool1d", 2},
    {"aten::adaptive_max_pool2d", 2},
    {"aten::adaptive_max_pool3d", 2},
    {"aten::fractional_max_pool2d", 2},
    {"aten::lstm.input", 3},
    {"aten::gru.input", 2},
    {"aten::rnn_tanh.input", 2},
    {"aten::rnn_relu.input", 2},
    {"aten::nll_loss_forward", 2},
    {"aten::slogdet", 2},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", 2},
    {"aten::_scaled_dot_product_efficient_attention", 4},
    {"aten::_scaled_dot_product_flash_attention", 9},
    {"aten::linalg_qr", 2},
    {"aten::_unique2", 3},
    {"aten::unique_consecutive", 3},
    {"aten::grid_sampler_2d_backward", 2},
};

/// One argument by position or keyword, removed from the keywords.
Arg take(Call& call, std::size_t position, std::string_view name, Arg fallback = {}) {
  if (position < call.args.size()) return call.args[position];
  for (auto it = call.kwargs.begin(); it != call.kwargs.end(); ++it)
    if (it->first == name) {
      Arg value = std::move(it->second);
      call.kwargs.erase(it);
      return value;
    }
  return fallback;
}

void to_batch_norm(Call& call, bool training) {
  // Functional form: (input, weight, bias, running_mean, running_var, training, momentum, eps); the form without
  // training lacks the sixth. cudnn_enabled is True as torch.backends.cudnn has it.
  const bool no_training = call.op.starts_with("aten::_native_batch_norm_legit_no_training");
  if (no_training && call.args.size() >= 5) call.args.insert(call.args.begin() + 5, Arg{false});
  Arg::List args;
  const char* names[] = {"input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps"};
  for (std::size_t i = 0; i < std::size(names); ++i) args.push_back(take(call, i, names[i]));
  if (!training) args[5] = {false};
  args.push_back({true});
  call.op = "aten::batch_norm";
  call.args = std::move(args);
  call.kwargs.clear();
  call.outputs.resize(std::min<std::size_t>(call.outputs.size(), 1));
}

/// Those with a flag `train` behind the probability; in-place ones come from the training IR and from traces.
bool is_dropout(std::string_view op) {
  return op == "aten::dropout" || op == "aten::dropout_" || op == "aten::feature_dropout" ||
         op == "aten::feature_dropout_" || op == "aten::alpha_dropout" || op == "aten::alpha_dropout_" ||
         op == "aten::feature_alpha_dropout" || op == "aten::feature_alpha_dropout_";
}

bool keyword_is(const Call& call, std::string_view name, std::string_view value) {
  for (const auto& [key, arg] : call.kwargs)
    if (key == name)
      if (const auto* text = std::get_if<std::string>(&arg.value)) return *text == value;
  return false;
}

}  // namespace

bool has_no_effect(std::string_view target) {
  for (std::string_view t :
       {"torch.ops.aten._assert_tensor_metadata", "torch.ops.aten._assert_scalar", "torch.ops.aten._assert_async",
        "torch.ops.aten.sym_constrain_range", "torch.ops.aten._functional_assert", "torch._check", "torch.sym_not"})
    if (target.starts_with(t)) return true;
  return false;
}

int outputs_of(std::string_view op) {
  for (const Outputs& o : several)
    if (o.op == op) return o.count;
  return 1;
}

bool trains(const Call& call) {
  const bool drops = call.op == "aten::native_dropout" || is_dropout(call.op);
  const bool recurrent = call.op == "aten::lstm.input" || call.op == "aten::gru.input";
  const std::size_t place = drops ? 2 : call.op == "aten::batch_norm" ? 5 : recurrent ? 6 : call.args.size();
  const auto* flag = place < call.args.size() ? std::get_if<bool>(&call.args[place].value) : nullptr;
  return flag && *flag;
}

void rewrite(Call& call, const TrainingSetup& setup) {
  const bool training = setup.mode == Mode::training;
  if (call.op == "aten::_native_batch_norm_legit.no_stats" && call.args.size() >= 3) {
    // (input, weight, bias, training, momentum, eps): its statistics are those of the batch in every mode.
    call.args.insert(call.args.begin() + 3, 2, Arg{});
    to_batch_norm(call, true);
  } else if (call.op.starts_with("aten::_native_batch_norm_legit")) {
    to_batch_norm(call, training);
  } else if (call.op == "aten::batch_norm" && !training && call.args.size() > 5) {
    call.args[5] = {false};
  } else if (call.op == "aten::native_dropout") {
    Arg p = take(call, 1, "p"), train = take(call, 2, "train", {true});
    if (train.is_none()) train = {true};
    call.op = "aten::dropout";
    call.args = {call.args.at(0), std::move(p), training ? std::move(train) : Arg{false}};
    call.kwargs.clear();
  } else if (is_dropout(call.op) && !training && call.args.size() > 2) {
    call.args[2] = {false};
  } else if (call.op == "aten::clone" && call.kwargs.empty() && call.source.find("clone(") == std::string::npos) {
    // Dropout with p = 0 decomposes to a copy; eager code returns its input. A copy that the program asked for says so
    // on its line, unless a plain function between the line and the op hides it.
    call.op = "aten::dropout";
    call.args = {call.args.at(0), Arg{0.0}, Arg{training}};
    call.kwargs.clear();
  } else if (call.op == "aten::clone" && keyword_is(call, "memory_format", "contiguous_format")) {
    // contiguous() of a tensor that was not contiguous where the export ran. On CUDA its strides can be others.
    call.op = "aten::contiguous";
    call.args.resize(1);
    call.kwargs.clear();
  } else if (call.op == "aten::view" || call.op == "aten::_unsafe_view") {
    // The same the other way round: a contiguous() that did nothing where the export ran is not in the graph. Eager
    // code ran, so a view that does not fit must be a copy (and reshape is decomposed to view as well).
    call.op = "aten::reshape";
  } else if (call.op == "aten::slice.Tensor") {
    call.op = "memplan::index_slice";
  } else if (call.op == "prims::convert_element_type") {
    Arg dtype = take(call, 1, "dtype");
    call.op = "aten::to.dtype";
    call.args = {call.args.at(0), std::move(dtype)};
  } else if ((call.op == "aten::lstm.input" || call.op == "aten::gru.input" || call.op.starts_with("aten::rnn_")) &&
             call.args.size() > 6) {
    call.args[6] = {training};
  } else if (call.op == "aten::scaled_dot_product_attention" && !training && call.args.size() > 4) {
    call.args[4] = {0.0};
  }
}

std::optional<std::vector<std::int64_t>> sizes_of_parameter(const Call& call, std::size_t at, const SizesOf& sizes_of) {
  using Sizes = std::vector<std::int64_t>;
  if (call.op == "aten::linear" && at == 2)
    if (const Sizes* w = sizes_of(1); w && !w->empty()) return Sizes{(*w)[0]};
  if (call.op == "aten::addmm" && at == 0)
    if (const Sizes* w = sizes_of(2); w && w->size() == 2) return Sizes{(*w)[1]};
  if ((call.op.starts_with("aten::conv1d") || call.op.starts_with("aten::conv2d") ||
       call.op.starts_with("aten::conv3d") || call.op == "aten::convolution") &&
      at == 2)
    if (const Sizes* w = sizes_of(1); w && !w->empty()) return Sizes{(*w)[0]};
  if (call.op == "aten::layer_norm" && (at == 2 || at == 3) && call.args.size() > 1)
    if (const auto* shape = std::get_if<Arg::List>(&call.args[1].value)) {
      Sizes out;
      for (const Arg& a : *shape)
        if (const auto* n = std::get_if<std::int64_t>(&a.value)) out.push_back(*n);
      if (out.size() == shape->size()) return out;
    }
  if ((call.op.find("batch_norm") != std::string::npos || call.op == "aten::group_norm") && at >= 1 && at <= 4)
    for (std::size_t i = 1; i <= 4; ++i)
      if (const Sizes* w = sizes_of(i); w && w->size() == 1) return *w;
  return std::nullopt;
}

}  // namespace memplan::onnx_format
