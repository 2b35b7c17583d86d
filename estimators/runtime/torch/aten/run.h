// The state of one run on paper: which tensors live, which op is running, and the events recorded so far.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "estimators/facts/device.h"
#include "estimators/runtime/torch/aten/node.h"
#include "estimators/schedule/schedule.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/reading.h"

namespace memplan {

struct Row;
struct TorchProfile;
class CudnnLibrary;
class Run;

/// What ops ask of the setup. Everything else that a user chooses is the business of the program around the model.
struct RunOptions {
  DType default_dtype = DType::float32;  ///< of a model after model.bfloat16() or model.half()
  AttentionBackend attention = AttentionBackend::automatic;
  const TorchProfile* profile = nullptr;                    ///< the version of PyTorch that runs; never null in a run
  WorkspaceReading workspaces = WorkspaceReading::nearest;  ///< of convolutions that no table has
  CudnnLibrary* cudnn = nullptr;                            ///< asked about them first
};
RunOptions run_options(const TrainingSetup& setup, const Reading& reading = {});

/// torch.nn.functional.linear: input, weight, and a bias that may be null.
using LinearFunction = Tensor (*)(Run&, const Tensor&, const Tensor&, const Tensor&);

/// torch.autograd.graph.saved_tensors_hooks: gets every tensor that an op saves instead of its node.
struct SaveHook {
  virtual ~SaveHook() = default;
  virtual void save(Run&, Node&, const Tensor&, bool output) = 0;
};

/// Outputs of chosen ops that a checkpointed stretch keeps from its first run for its second one
/// (torch.utils.checkpoint.create_selective_checkpoint_contexts).
struct OpCache {
  virtual ~OpCache() = default;
  /// What the op made in the first run; an empty list when it has to run.
  virtual TensorList take(Run&, std::string_view op) = 0;
  virtual void keep(Run&, std::string_view op, const TensorList& outputs) = 0;
};

/// What a wrapper of the model (DDP, FSDP) hears from the backward pass.
struct BackwardHooks {
  virtual ~BackwardHooks() = default;
  /// A gradient has been stored in `leaf.grad` (post-accumulate hooks of AccumulateGrad).
  virtual void accumulated(Run&, TensorBody& leaf) = 0;
  /// The engine's queue is empty (queue_callback), before backward() returns.
  virtual void finished(Run&) = 0;
};

/// Leaves and what autocast has cast them to. They go in the order in which they came: PyTorch's go by their addresses,
/// and the same question must get the same answer.
class CastCache {
 public:
  Tensor find(const Tensor& leaf) const {
    const auto it = places_.find(leaf.get());
    return it == places_.end() ? Tensor() : casts_[it->second].second;
  }
  void add(const Tensor& leaf, const Tensor& cast) {
    if (places_.try_emplace(leaf.get(), casts_.size()).second) casts_.emplace_back(leaf, cast);
  }
  void clear() {
    places_.clear();
    for (auto& cast : casts_) cast = {};
    casts_.clear();
  }

 private:
  std::unordered_map<const TensorBody*, std::size_t> places_;
  std::vector<std::pair<Tensor, Tensor>> casts_;
};

class Run {
 public:
  Run(const RunOptions& options, const Device& device);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // --- memory ---------------------------------------------------------------------------------------------------
  /// A fresh contiguous tensor (at::empty).
  Tensor empty(const Dims& sizes, DType dtype, Category category = Category::activation);
  Tensor empty_strided(const Dims& sizes, const Dims& strides, DType dtype, Category category = Category::activation);
  /// at::empty_like with preserve_format: the strides of `t` where it is dense, else a dense layout of the same order.
  Tensor empty_like(const Tensor& t);
  Tensor empty_like(const Tensor& t, DType dtype);
  /// Same storage, other geometry; no autograd.
  Tensor alias(const Tensor& t, const Dims& sizes, const Dims& strides, std::int64_t offset);
  Tensor detach(const Tensor& t);
  /// A CPU tensor: no device memory.
  Tensor host(const Dims& sizes, DType dtype);
  /// Gives a contiguous tensor, made before its shape was known, that shape; its place in the order of events stays.
  void resize(const Tensor& t, const Dims& sizes, DType dtype);
  /// A buffer of raw bytes that a kernel needs while it runs; freed when the handle goes.
  Tensor scratch(Bytes bytes, Category category = Category::temporary);

  // --- autograd -------------------------------------------------------------------------------------------------
  bool grad_mode = true;
  bool needs_grad(const Tensor& t) const { return grad_mode && t && t->requires_grad(); }
  /// Makes the node of an op whose differentiable inputs are `inputs` (null or non-differentiable ones allowed) and
  /// ties it to `outputs`. Returns null when no input wants a gradient.
  Node* record(std::initializer_list<Tensor> inputs, std::initializer_list<Tensor> outputs, Backward backward);
  Node* record(const TensorList& inputs, const TensorList& outputs, Backward backward);
  /// SavedVariable of an input: keeps the tensor.
  void save(Node* node, const Tensor& t);
  /// SavedVariable of an output: keeps a detached alias, so that no cycle arises.
  void save_output(Node* node, const Tensor& t);
  /// In-place op: the tensor's history becomes `node` (made with record(..., {}, ...), the tensor its first input). Of
  /// a view it becomes that of its base (CopySlices), from which the view's own follows.
  void rebase(const Tensor& t, Node* node);
  /// Marks `view` as a differentiable view of `t`.
  void set_base(const Tensor& view, const Tensor& t);
  std::uint64_t next_sequence = 0;
  SaveHook* save_hook = nullptr;
  /// Recomputing a checkpointed stretch: what is made in the backward pass now are activations.
  bool recomputing = false;
  /// New tensors take no memory: an op whose outputs are never made (recomputation stops inside of it).
  bool phantom = false;
  OpCache* op_cache = nullptr;
  /// An op as the dispatcher sees it below autograd: `make` runs it, unless the cache has its outputs.
  template <class Make>
  TensorList dispatched(std::string_view op, Make make) {
    if (!op_cache) return make();
    if (TensorList kept = op_cache->take(*this, op); !kept.empty()) return kept;
    TensorList made = make();
    op_cache->keep(*this, op, made);
    return made;
  }
  /// Gives a phantom tensor its memory after all.
  void materialize(const Tensor& t);
  BackwardHooks* backward_hooks = nullptr;
  /// What a library has put in the place of torch.nn.functional.linear; null: PyTorch's own.
  LinearFunction linear = nullptr;

  // --- several GPUs ---------------------------------------------------------------------------------------------
  /// The CUDA stream whose pool serves allocations: 0 computes, others communicate.
  std::int32_t stream = 0;
  /// storage.resize_(0) and back: every tensor that shares the storage keeps its shape and loses or regains its memory.
  void free_memory(const Tensor& t);
  void take_memory(const Tensor& t, Category category);
  /// Temporary memory that no other op reads, without a tensor for it. Many of them cost less than tensors;
  /// `give_pieces` frees the allocations from one number up to another, in order.
  void take_piece(std::int64_t elements, DType dtype);
  void give_pieces(std::int32_t from, std::int32_t below);

  // --- autocast -------------------------------------------------------------------------------------------------
  bool autocast = false;
  DType autocast_dtype = DType::bfloat16;
  CastCache cast_cache;

  /// What a module makes in its first forward pass and keeps for the whole run, by its weight.
  std::unordered_map<const TensorBody*, TensorList> kept_by_modules;
  /// Rows that functions of backward formulas stand for, by name and kinds of arguments: looked up once.
  std::unordered_map<std::string, const Row*> known_overloads;

  // --- the record -----------------------------------------------------------------------------------------------
  const RunOptions options;
  const Device& device;
  const TorchProfile& profile;  ///< the version of PyTorch that runs
  Schedule schedule;
  Phase phase = Phase::setup;
  std::int32_t step = 0;
  std::int32_t scope = -1;
  std::int32_t call = -1;

  /// Begins a new OpRecord; later events belong to it.
  void begin_op(std::string_view name);
  void begin_op(std::int32_t name);
  std::int32_t intern(std::string_view text);
  void label(const Tensor& t, std::string_view name);
  void label(const Tensor& t, std::int32_t name);
  void set_category(const Tensor& t, Category category);
  void set_reason(const Tensor& t, std::string_view reason);
  /// Where the bytes of an op come from, and how far off they may be.
  void note(std::string_view op, About about, Evidence evidence, std::string_view text, std::optional<Effect> off = {});
  /// torch.cuda.empty_cache(): the allocator gives back what no tensor lies in.
  void empty_cache();

  // --- library state --------------------------------------------------------------------------------------------
  bool on_engine_thread = false;  ///< backward runs on another host thread with its own library handles
  /// A GEMM takes cuBLAS's workspace, for the call or, in the first call of a thread, until the process ends
  /// (LibraryWorkspaces).
  void use_cublas();
  /// cuBLASLt has a workspace of its own; where they are kept, the same call creates the cuBLAS one too.
  void use_cublas_lt();
  /// The first recurrent layer that drops out in training makes cuDNN's random state, kept until the process ends.
  void use_cudnn_dropout();
  Bytes cudnn_dropout_bytes() const;

  /// What lives in allocations from this one on lives in later ones now: the record was continued without the program.
  void renumber(std::int32_t from, std::int32_t by);

  /// Hands over the record; what is freed from here on is not part of it.
  Schedule close();

  // --- used by handles ------------------------------------------------------------------------------------------
  void free_storage(Storage* storage);
  void release_node(Node* node);

 private:
  Storage* new_storage(std::int64_t bytes, Category category, const Dims& sizes, DType dtype);
  void begin_allocation(Storage* storage, Category category, const Dims& sizes, DType dtype);
  std::int32_t shape_of(const Dims& sizes, DType dtype);
  void keep(Node* node, const Tensor& t);
  Tensor pass_workspace(Bytes bytes, std::string_view name);
  void rebase_base(const Tensor& view, Node* node);
  std::deque<Storage> storages_;
  std::vector<Storage*> free_storages_;
  struct StringHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  std::unordered_map<std::string, std::int32_t, StringHash, std::equal_to<>> interned_;
  std::unordered_multimap<std::size_t, std::int32_t> shapes_;  ///< by hash, as indices into Schedule::shapes
  std::vector<Node*> dying_nodes_;
  bool releasing_nodes_ = false;
  bool closed_ = false;
  Tensor cublas_workspace_[2], cublas_lt_workspace_[2], cudnn_dropout_;
};

/// Another value until the end of a scope, which puts the old one back.
template <class T>
class ScopedValue {
 public:
  ScopedValue(T& place, T value) : place_(place), old_(place) { place_ = std::move(value); }
  ~ScopedValue() { place_ = std::move(old_); }

 private:
  T& place_;
  T old_;
};

}  // namespace memplan
