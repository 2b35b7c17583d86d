#include "estimators/runtime/torch/aten/run.h"

#include <fmt/format.h>

#include "estimators/runtime/torch/aten/stride_order.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/schedule/limits.h"

namespace memplan {

RunOptions run_options(const TrainingSetup& setup, const Reading& reading) {
  RunOptions options;
  options.default_dtype = setup.precision == Precision::bf16   ? DType::bfloat16
                          : setup.precision == Precision::fp16 ? DType::float16
                                                               : DType::float32;
  options.attention = setup.attention;
  options.profile = &profile_of(setup);
  options.workspaces = reading.workspaces;
  options.cudnn = setup.runtime.cudnn.get();
  return options;
}

Run::Run(const RunOptions& o, const Device& d) : options(o), device(d), profile(*o.profile) {}

Run::~Run() {
  cast_cache.clear();
  kept_by_modules.clear();
  for (auto& w : cublas_workspace_) w.reset();
  for (auto& w : cublas_lt_workspace_) w.reset();
  cudnn_dropout_.reset();
}

// --- memory ---------------------------------------------------------------------------------------------------------

Storage* Run::new_storage(std::int64_t bytes, Category category, const Dims& sizes, DType dtype) {
  Storage* s;
  if (free_storages_.empty()) {
    s = &storages_.emplace_back();
  } else {
    s = free_storages_.back();
    free_storages_.pop_back();
  }
  *s = Storage{this, bytes, 0, -1};
  if (bytes > 0 && !phantom) begin_allocation(s, category, sizes, dtype);
  return s;
}

void Run::begin_allocation(Storage* s, Category category, const Dims& sizes, DType dtype) {
  if (schedule.events.size() >= most_events) fail_most_events();
  s->allocation = static_cast<std::int32_t>(schedule.allocations.size());
  Allocation& a = schedule.allocations.emplace_back();
  a.size = Bytes(s->bytes);
  a.born = static_cast<std::int32_t>(schedule.events.size());
  a.op = static_cast<std::int32_t>(schedule.ops.size()) - 1;
  a.category = category;
  a.stream = stream;
  a.shape_at = shape_of(sizes, dtype);
  schedule.events.push_back({Event::Kind::alloc, s->allocation});
}

std::int32_t Run::shape_of(const Dims& sizes, DType dtype) {
  std::size_t hash = static_cast<std::size_t>(dtype);
  for (const std::int64_t n : sizes) hash = hash * 0x9E3779B97F4A7C15u + static_cast<std::size_t>(n);
  for (auto [it, end] = shapes_.equal_range(hash); it != end; ++it) {
    const TensorShape& known = schedule.shapes[static_cast<std::size_t>(it->second)];
    if (known.dtype == static_cast<std::uint8_t>(dtype) &&
        std::equal(sizes.begin(), sizes.end(), known.sizes.begin(), known.sizes.end()))
      return it->second;
  }
  const auto at = static_cast<std::int32_t>(schedule.shapes.size());
  schedule.shapes.push_back({static_cast<std::uint8_t>(dtype), sizes.vector()});
  shapes_.emplace(hash, at);
  return at;
}

void Run::materialize(const Tensor& t) {
  Storage* s = t->storage.get();
  if (!s || s->allocation >= 0 || s->bytes == 0 || t->on_host) return;
  begin_allocation(s, Category::activation, t->sizes, t->dtype);
}

void Run::free_memory(const Tensor& t) {
  Storage* s = t->storage.get();
  if (!s || s->allocation < 0 || closed_) return;
  schedule.allocations[s->allocation].died = static_cast<std::int32_t>(schedule.events.size());
  schedule.events.push_back({Event::Kind::free, s->allocation});
  s->allocation = -1;
}

void Run::take_memory(const Tensor& t, Category category) {
  Storage* s = t->storage.get();
  if (!s || s->allocation >= 0 || s->bytes == 0) return;
  begin_allocation(s, category, t->sizes, t->dtype);
  schedule.allocations[s->allocation].label = t->name;
}

void Run::take_piece(std::int64_t elements, DType dtype) {
  Storage s{this, bytes_of(dtype, elements).count, 0, -1};
  begin_allocation(&s, Category::temporary, {elements}, dtype);
}

void Run::give_pieces(std::int32_t from, std::int32_t below) {
  for (std::int32_t a = from; a < below; ++a) {
    schedule.allocations[static_cast<std::size_t>(a)].died = static_cast<std::int32_t>(schedule.events.size());
    schedule.events.push_back({Event::Kind::free, a});
  }
}

void Run::renumber(std::int32_t from, std::int32_t by) {
  for (Storage& s : storages_)
    if (s.allocation >= from) s.allocation += by;
}

Schedule Run::close() {
  closed_ = true;
  return std::move(schedule);
}

void Run::free_storage(Storage* s) {
  if (closed_) return;
  if (s->allocation >= 0) {
    Allocation& a = schedule.allocations[s->allocation];
    a.died = static_cast<std::int32_t>(schedule.events.size());
    // What an op both takes and gives back is its scratch memory, whatever it was made as.
    if (a.op == static_cast<std::int32_t>(schedule.ops.size()) - 1 && a.category == Category::activation)
      a.category = Category::temporary;
    schedule.events.push_back({Event::Kind::free, s->allocation});
  }
  free_storages_.push_back(s);
}

Tensor Run::empty(const Dims& sizes, DType dtype, Category category) {
  return empty_strided(sizes, contiguous_strides(sizes), dtype, category);
}

Tensor Run::empty_strided(const Dims& sizes, const Dims& strides, DType dtype, Category category) {
  std::int64_t span = 1;  // elements from the first to the last one addressed
  for (int i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0) fail_input("a computed size is negative", {}, "check the dimensions given");
    if (sizes[i] == 0) {
      span = 0;
      break;
    }
    span = checked_add(span, checked_mul(sizes[i] - 1, strides[i]));
  }
  // In the backward pass nothing but gradients on their way is made; parameters' gradients are marked when stored.
  if (category == Category::activation && !recomputing &&
      (phase == Phase::backward || phase == Phase::optimizer || phase == Phase::clip))
    category = Category::temporary;
  auto* body = new TensorBody;
  body->sizes = sizes;
  body->strides = strides;
  body->dtype = dtype;
  Tensor t(body);
  body->storage = StorageRef(new_storage(bytes_of(dtype, span).count, category, sizes, dtype));
  return t;
}

Tensor Run::empty_like(const Tensor& t) { return empty_like(t, t->dtype); }

Tensor Run::empty_like(const Tensor& t, DType dtype) {
  if (t->on_host) return host(t->sizes, dtype);
  if (is_non_overlapping_and_dense(*t)) return empty_strided(t->sizes, t->strides, dtype);
  // infer_dense_strides (aten/src/ATen/native/TensorFactories.cpp): same order of dimensions, without gaps.
  std::vector<int> order = reversed_dims(t->rank());
  sort_by_stride(order, [&](int a, int b) {
    const auto sa = t->strides[a], sb = t->strides[b];
    if (sa == 0 || sb == 0) return 0;
    if (sa < sb) return -1;
    if (sa > sb) return 1;
    return t->sizes[a] > t->sizes[b] ? 1 : 0;
  });
  return empty_strided(t->sizes, dense_strides(t->sizes, order), dtype);
}

Tensor Run::alias(const Tensor& t, const Dims& sizes, const Dims& strides, std::int64_t offset) {
  auto* body = new TensorBody;
  body->sizes = sizes;
  body->strides = strides;
  body->offset = offset;
  body->dtype = t->dtype;
  body->on_host = t->on_host;
  body->is_view = true;
  body->conjugated = t->conjugated;
  body->shows_trained = !grad_mode && (t->requires_grad() || t->shows_trained);
  body->storage = t->storage;
  body->name = t->name;
  return Tensor(body);
}

Tensor Run::detach(const Tensor& t) {
  Tensor out = alias(t, t->sizes, t->strides, t->offset);
  out->shows_trained = false;
  return out;
}

Tensor Run::host(const Dims& sizes, DType dtype) {
  auto* body = new TensorBody;
  body->sizes = sizes;
  body->strides = contiguous_strides(sizes);
  body->dtype = dtype;
  body->on_host = true;
  Tensor t(body);
  body->storage = StorageRef(new_storage(0, Category::temporary, sizes, dtype));
  return t;
}

void Run::resize(const Tensor& t, const Dims& sizes, DType dtype) {
  t->sizes = sizes;
  t->strides = contiguous_strides(sizes);
  t->dtype = dtype;
  t->storage->bytes = bytes_of(dtype, t->numel()).count;
  Allocation& a = schedule.allocations[t->storage->allocation];
  a.size = Bytes(t->storage->bytes);
  a.shape_at = shape_of(sizes, dtype);
}

Tensor Run::scratch(Bytes bytes, Category category) { return empty({bytes.count}, DType::uint8, category); }

// --- the record -----------------------------------------------------------------------------------------------------

void Run::begin_op(std::string_view name) { begin_op(intern(name)); }

void Run::begin_op(std::int32_t name) {
  OpRecord& op = schedule.ops.emplace_back();
  op.name = name;
  op.scope = scope;
  op.call = call;
  op.phase = phase;
  op.step = step;
  op.first_event = static_cast<std::int32_t>(schedule.events.size());
}

std::int32_t Run::intern(std::string_view text) {
  auto it = interned_.find(text);
  if (it != interned_.end()) return it->second;
  const auto id = static_cast<std::int32_t>(schedule.names.size());
  schedule.names.emplace_back(text);
  interned_.emplace(std::string(text), id);
  return id;
}

void Run::label(const Tensor& t, std::string_view name) { label(t, intern(name)); }

void Run::label(const Tensor& t, std::int32_t name) {
  if (!t) return;
  t->name = name;
  if (t->storage->allocation >= 0) {
    Allocation& a = schedule.allocations[t->storage->allocation];
    if (a.label < 0) a.label = name;
  }
}

void Run::set_category(const Tensor& t, Category category) {
  if (t && t->storage->allocation >= 0) schedule.allocations[t->storage->allocation].category = category;
}

void Run::set_reason(const Tensor& t, std::string_view reason) {
  if (t && t->storage->allocation >= 0) schedule.allocations[t->storage->allocation].reason = intern(reason);
}

void Run::note(std::string_view op, About about, Evidence evidence, std::string_view text, std::optional<Effect> off) {
  // Convolutions note the same thing hundreds of times: the strings are made once.
  for (Fact& f : schedule.notes) {
    if (f.about != about || f.evidence != evidence || f.off.has_value() != off.has_value() || f.op != op ||
        f.text != text || !f.code.empty())
      continue;
    ++f.count;
    if (!off) return;
    f.off->below = std::max(f.off->below, off->below);
    f.off->above = std::max(f.off->above, off->above);
    return;
  }
  Fact fact{{}, std::string(text), evidence, about, std::string(op)};
  fact.scope = scope;
  fact.off = off;
  memplan::note(schedule.notes, std::move(fact));
}

void Run::empty_cache() {
  scope = call = -1;
  begin_op("torch.cuda.empty_cache");
  schedule.events.push_back({Event::Kind::empty_cache, -1});
}

// --- library state --------------------------------------------------------------------------------------------------

void Run::use_cublas() {
  if (profile.workspaces.cublas_life == WorkspaceLife::per_call) {
    pass_workspace(profile.workspaces.cublas_on(device.sm()), "cuBLAS workspace of the call");
    return;
  }
  Tensor& w = cublas_workspace_[on_engine_thread];
  if (w) return;
  w = scratch(profile.workspaces.cublas_on(device.sm()), Category::workspace);
  label(w, on_engine_thread ? "cuBLAS workspace of the backward thread" : "cuBLAS workspace");
  set_reason(w, "kept by PyTorch for every thread and stream");
}

Tensor Run::pass_workspace(Bytes bytes, std::string_view name) {
  Tensor w = scratch(bytes, Category::workspace);
  label(w, name);
  set_reason(w, "made for one call and freed behind it");
  return w;
}

void Run::use_cublas_lt() {
  const LibraryWorkspaces& sizes = profile.workspaces;
  const bool kept = sizes.cublas_life == WorkspaceLife::kept;
  if (kept && sizes.cublas_lt_shares_cublas) return use_cublas();
  const bool with_handle = kept && sizes.cublas_lt_sets_cublas;
  if (sizes.cublas_lt_life == WorkspaceLife::per_call) {
    const Tensor w = pass_workspace(sizes.cublas_lt, "cuBLASLt workspace of the call");
    if (with_handle) use_cublas();
    return;
  }
  if (with_handle) use_cublas();
  Tensor& w = cublas_lt_workspace_[on_engine_thread];
  if (w) return;
  w = scratch(profile.workspaces.cublas_lt, Category::workspace);
  label(w, "cuBLASLt workspace");
  set_reason(w, "kept by PyTorch for every thread and stream");
}

Bytes Run::cudnn_dropout_bytes() const {
  return profile.workspaces.cudnn_dropout_per_thread *
         (std::int64_t{device.multiprocessors} * device.threads_per_multiprocessor);
}

// DropoutDescriptor::initialize_rng (native/cudnn/RNN.cpp): so many bytes for every thread that the device can run,
// after the seed, an int64 on the device, was drawn.
void Run::use_cudnn_dropout() {
  if (cudnn_dropout_) return;
  { Tensor seed = scratch(Bytes(8)); }
  cudnn_dropout_ = scratch(cudnn_dropout_bytes(), Category::workspace);
  label(cudnn_dropout_, "cuDNN's dropout state");
  set_reason(cudnn_dropout_, "kept by PyTorch until the process ends");
}

}  // namespace memplan
