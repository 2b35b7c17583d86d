// A TrainingSetup says everything that a user can choose about the run whose memory is asked for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "estimators/base/bytes.h"
#include "estimators/base/dtype.h"
#include "estimators/base/evidence.h"
#include "estimators/setup/margin.h"
#include "estimators/setup/onnxruntime.h"
#include "estimators/setup/parallel.h"

namespace memplan {

class CudnnLibrary;
struct TorchProfile;

enum class Mode : std::uint8_t { training, inference };
enum class Precision : std::uint8_t { fp32, amp_bf16, amp_fp16, bf16, fp16 };
/// Linears in 8 bits as NVIDIA's Transformer Engine runs them in a bfloat16 model: beside the weights (`cached`) or
/// instead of them
/// (`primary`). docs/strategies.md, "fp8".
enum class Fp8 : std::uint8_t { none, cached, primary };
enum class OptimizerKind : std::uint8_t {
  none,
  sgd,
  adam,
  adamw,
  adagrad,
  rmsprop,
  adafactor,
  adafactor_hf,
  lion,
  adamw8bit,
  muon
};
enum class OptimizerImpl : std::uint8_t { automatic, foreach, fused, loop };
enum class AttentionBackend : std::uint8_t { automatic, math, flash, efficient, cudnn };
/// `causal_lm` is that of Hugging Face's causal language models: logits in fp32, labels moved by one.
enum class Loss : std::uint8_t { automatic, cross_entropy, mse, sum, causal_lm };
enum class ZeroGrad : std::uint8_t { begin_set_none, end_set_none, begin_keep, before_backward };

struct OptimizerSetup {
  OptimizerKind kind = OptimizerKind::adamw;
  OptimizerImpl impl = OptimizerImpl::automatic;
  double momentum = 0.0;  ///< SGD, RMSprop
  bool nesterov = false;
  double weight_decay = 0.01;  ///< AdamW's default; 0 for the others unless given
  bool amsgrad = false;
};

/// Settings of PyTorch's caching allocator (PYTORCH_ALLOC_CONF).
struct AllocatorSetup {
  bool expandable_segments = false;
  std::optional<Bytes> max_split_size;                 ///< max_split_size_mb
  std::optional<Bytes> max_non_split_rounding;         ///< max_non_split_rounding_mb
  std::vector<std::int64_t> roundup_power2_divisions;  ///< empty = off, else 16 entries (docs of PyTorch)
  double garbage_collection_threshold = 0;
  double memory_fraction = 1.0;
  std::optional<Bytes> large_segment;  ///< large_segment_size_mb; none: what the version of PyTorch has
  bool falling_addresses = false;      ///< what the driver does, no setting (runtime/torch/allocator/device_memory.h)
};

/// What lives in host memory instead of on the device (docs/strategies.md names the program of each).
struct OffloadSetup {
  bool activations = false;  ///< the forward pass runs under torch.autograd.graph.save_on_cpu(pin_memory=True)
  bool optimizer = false;    ///< optimizer, its state and the weights that it updates are on the host
  bool parameters = false;   ///< the weights of a block are on the device only while the block runs
  bool any() const { return activations || optimizer || parameters; }
};

/// Low-rank adapters on a frozen model, as the peft library makes them.
struct LoraSetup {
  std::int64_t rank = 8;
  double dropout = 0;  ///< lora_dropout; 0 is an nn.Identity
  std::vector<std::string>
      targets;               ///< globs over module paths; empty: every nn.Linear but the one that makes the logits
  bool quantized = false;    ///< QLoRA: weights of the adapted Linears as 4-bit NormalFloat with double quantization
  std::string bitsandbytes;  ///< the version that runs 4-bit layers, as "0.41.1"; empty: 0.43.2 or later
};

/// Keys and values of earlier tokens that inference keeps on the device.
struct KvCacheSetup {
  std::int64_t sequences = 1;
  std::int64_t length = 0;     ///< tokens per sequence
  std::optional<DType> dtype;  ///< of keys and values; none: the dtype that attention runs in
  std::int64_t block = 1;      ///< tokens per page: every sequence takes whole pages
};

/// What runs the model: a row of runtimes() (runtime/runtime.h) in one of its versions.
struct RuntimeSetup {
  std::string name = "torch";
  /// Of PyTorch: a row of profiles() (runtime/torch/profile/profile.h). choose_version() there says which one suits a
  /// file.
  std::string version = "2.11";
  std::map<std::string, std::string>
      environment;                       ///< of PyTorch's process: environment_variables() (profile/environment.h)
  std::string why;                       ///< that version, "which wrote the file"; reports put it behind the version
  Evidence evidence = Evidence::chosen;  ///< of that version: `assumed` where the one that runs has no figures
  /// A profile of the caller's own instead of that row; it must outlive every use of the setup.
  const TorchProfile* profile = nullptr;
  /// An installed cuDNN that is asked about convolutions that no table has; null: none is.
  std::shared_ptr<CudnnLibrary> cudnn;
};

struct TrainingSetup {
  RuntimeSetup runtime;
  OrtSetup ort;  ///< for runtime "ort"
  Mode mode = Mode::training;
  std::map<std::string, std::int64_t> dims;  ///< open dimensions by name
  std::optional<std::int64_t> batch;
  std::optional<std::int64_t> sequence;
  std::optional<std::int64_t> shortest_sequence;  ///< batches have from this to `sequence` tokens
  Precision precision = Precision::fp32;
  Fp8 fp8 = Fp8::none;  ///< with Precision::bf16
  Loss loss = Loss::automatic;
  OptimizerSetup optimizer;
  std::int64_t accumulate = 1;  ///< micro-batches per optimizer step
  bool clip_grad_norm = false;
  ZeroGrad zero_grad = ZeroGrad::begin_set_none;
  bool keep_output = false;         ///< the Python name of the model's output lives until the next forward returns
  bool inplace_activations = true;  ///< trust data/aten/inplace_modules for nn.ReLU(inplace=True) and the like
  AttentionBackend attention = AttentionBackend::automatic;
  AllocatorSetup allocator;
  /// What runs under torch.utils.checkpoint: globs over module paths, "blocks", "every:N" or "groups:N"
  /// (strategies/checkpointing.h).
  std::vector<std::string> checkpoint;
  std::vector<std::string> checkpoint_save;  ///< ops whose outputs checkpointed modules keep: "matmul", "attention",
                                             ///< "convolution", "aten::mm"
  bool checkpoint_optimal = false;           ///< the cheapest recomputation with which the step stays under the budget
  std::optional<Bytes>
      checkpoint_budget;  ///< peak of allocated bytes that `checkpoint_optimal` may use; none: what the device has
  std::optional<Margin> margin;  ///< what must stay free of the device; none: the default margin
  OffloadSetup offload;
  std::optional<LoraSetup> lora;
  std::optional<KvCacheSetup> kv_cache;
  bool channels_last = false;      ///< model and 4-dimensional inputs in torch.channels_last
  bool keep_loss_history = false;  ///< a list holds every step's loss with its graph (losses.append(loss))
  bool empty_cache = false;        ///< torch.cuda.empty_cache() after every step
  bool compile = false;            ///< torch.compile(model): told by a recording of the compiled program alone
  /// torch._functorch.config.activation_memory_budget of a compiled module, 0 … 1: how much of what the fastest step
  /// keeps for the backward pass may be kept.
  double activation_memory_budget = 1;
  ParallelSetup parallel;
  std::vector<std::string> frozen;  ///< globs over parameter names
  std::int64_t steps = 3;           ///< simulated steps
};

}  // namespace memplan
