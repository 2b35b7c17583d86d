#include "memplan_torch/recorder.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "memplan_torch/commands.h"

namespace memplan::torch_side {

namespace {

using c10::CachingDeviceAllocator::TraceEntry;
using Allocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;

/// libc10_cuda is opened at run time, so its variable is looked up by name; the calls are virtual and need no symbol.
Allocator* cuda_allocator() {
  void* symbol = dlsym(RTLD_DEFAULT, "_ZN3c104cuda20CUDACachingAllocator9allocatorE");
  if (!symbol)
    throw Refusal("usage", "this PyTorch has no CUDA allocator", {},
                  "install the CUDA build of torch: pip install torch");
  return static_cast<std::atomic<Allocator*>*>(symbol)->load();
}

enum Kind : int { alloc = 0, free_ = 1, segment_alloc = 2, segment_free = 3, out_of_memory = 4 };

struct EventRow {
  int kind;
  std::int64_t bytes;
  std::uint64_t address;
  std::int32_t op;
};

struct OpRow {
  std::int32_t name = -1, node = -1, call = -1, phase = -1, step = 0;
  friend auto operator<=>(const OpRow&, const OpRow&) = default;
};

struct PhaseRow {
  int step = 0;
  std::string phase;
  Counts peak, after;
  std::int64_t segments = 0, retries = 0;
};

/// One running op or autograd node of a thread.
struct Frame {
  std::int32_t name = -1, node = -1, call = -1;
};
thread_local std::vector<Frame> frames;

/// Ops that only make the memory of the op around them.
bool only_makes_memory(const std::string& name) {
  return name.rfind("aten::empty", 0) == 0 || name == "aten::new_empty" || name == "aten::resize_" ||
         name == "aten::_to_copy" || name == "aten::new_empty_strided";
}

}  // namespace

struct Recorder::State {
  int device = 0;
  Allocator* allocator = nullptr;
  at::CallbackHandle callback = 0;
  bool active = false;

  // Engine threads report, too. Allocator's callbacks come under its own lock, ops' under none.
  std::mutex mutex;
  std::vector<std::string> names;
  std::unordered_map<std::string, std::int32_t> name_ids;
  std::vector<OpRow> ops;
  std::vector<EventRow> events;
  std::vector<PhaseRow> phases;
  int step = 0;
  std::int32_t phase = -1;
  std::atomic<std::int32_t> call{-1};
  std::uint64_t first_sequence = 0;
  std::unordered_map<std::uint64_t, std::int32_t> call_of_sequence;

  std::int32_t intern(const std::string& text) {
    const auto [it, fresh] = name_ids.try_emplace(text, static_cast<std::int32_t>(names.size()));
    if (fresh) names.push_back(text);
    return it->second;
  }

  void trace(const TraceEntry& e) {
    if (!active || e.device_ != device) return;
    int kind;
    switch (e.action_) {
      case TraceEntry::ALLOC:
        kind = alloc;
        break;
      case TraceEntry::FREE_REQUESTED:
        kind = free_;
        break;
      case TraceEntry::SEGMENT_ALLOC:
      case TraceEntry::SEGMENT_MAP:
        kind = segment_alloc;
        break;
      case TraceEntry::SEGMENT_FREE:
      case TraceEntry::SEGMENT_UNMAP:
        kind = segment_free;
        break;
      case TraceEntry::OOM:
        kind = out_of_memory;
        break;
      default:
        return;
    }
    const std::lock_guard lock(mutex);
    OpRow op;
    op.step = step;
    op.phase = phase;
    op.call = frames.empty() ? call.load() : frames.back().call;
    if (!frames.empty()) {
      op.name = frames.back().name;
      op.node = frames.back().node;
    }
    if (ops.empty() || ops.back() != op) ops.push_back(op);
    events.push_back({kind, static_cast<std::int64_t>(e.size_), e.addr_, static_cast<std::int32_t>(ops.size() - 1)});
  }

  void enter_frame(const at::RecordFunction& fn) {
    const std::string name = fn.name();
    const std::lock_guard lock(mutex);
    Frame frame = frames.empty() ? Frame{} : frames.back();
    // Also in the backward pass, while a checkpointed module runs again.
    if (call.load() >= 0) frame.call = call.load();
    if (fn.scope() == at::RecordScope::BACKWARD_FUNCTION) {
      const auto colon = name.rfind(": ");
      frame.node = intern(colon == std::string::npos ? name : name.substr(colon + 2));
      frame.name = -1;
      const auto owner = call_of_sequence.find(static_cast<std::uint64_t>(fn.seqNr()));
      frame.call = owner == call_of_sequence.end() ? -1 : owner->second;
    } else if (frame.name < 0 || !only_makes_memory(name)) {
      frame.name = intern(name);
    }
    frames.push_back(frame);
  }
};

namespace {

Recorder::State* current = nullptr;  // callbacks of PyTorch are plain functions

std::unique_ptr<at::ObserverContext> on_enter(const at::RecordFunction& fn) {
  current->enter_frame(fn);
  return nullptr;
}
void on_exit(const at::RecordFunction&, at::ObserverContext*) {
  if (!frames.empty()) frames.pop_back();
}

Counts peaks(const c10::CachingDeviceAllocator::DeviceStats& s) {
  return {s.requested_bytes[0].peak, s.allocated_bytes[0].peak, s.reserved_bytes[0].peak};
}
Counts now(const c10::CachingDeviceAllocator::DeviceStats& s) {
  return {s.requested_bytes[0].current, s.allocated_bytes[0].current, s.reserved_bytes[0].current};
}

nlohmann::json to_json(const Counts& c) {
  return {{"requested", c.requested}, {"allocated", c.allocated}, {"reserved", c.reserved}};
}

Counts largest(const Counts& a, const Counts& b) {
  return {std::max(a.requested, b.requested), std::max(a.allocated, b.allocated), std::max(a.reserved, b.reserved)};
}

}  // namespace

Recorder::Recorder(int device) : state_(std::make_unique<State>()) {
  state_->device = device;
  state_->allocator = cuda_allocator();
  current = state_.get();
  state_->callback =
      at::addGlobalCallback(at::RecordFunctionCallback(on_enter, on_exit)
                                .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  state_->allocator->attachAllocatorTraceTracker([](const TraceEntry& e) {
    if (current) current->trace(e);
  });
  state_->active = true;
}

Recorder::~Recorder() {
  state_->active = false;
  at::removeCallback(state_->callback);
  current = nullptr;
}

void Recorder::close_phase() {
  if (state_->phases.empty()) return;
  const auto stats = state_->allocator->getDeviceStats(static_cast<c10::DeviceIndex>(state_->device));
  PhaseRow& row = state_->phases.back();
  row.peak = peaks(stats);
  row.after = now(stats);
  row.segments = stats.segment[0].current;
  row.retries = stats.num_alloc_retries;
}

void Recorder::enter(int step, const char* phase) {
  close_phase();
  state_->allocator->resetPeakStats(static_cast<c10::DeviceIndex>(state_->device));
  const std::lock_guard lock(state_->mutex);
  state_->step = step;
  state_->phase = state_->intern(phase);
  state_->phases.push_back({step, phase, {}, {}, 0, 0});
}

void Recorder::empty_cache() { state_->allocator->emptyCache(); }

void Recorder::finish() {
  close_phase();
  state_->active = false;
}

void Recorder::begin_call(std::int32_t call) {
  state_->call = call;
  state_->first_sequence = at::sequence_number::peek();
}

void Recorder::end_call(bool recorded) {
  const std::lock_guard lock(state_->mutex);
  if (recorded)
    for (std::uint64_t s = state_->first_sequence; s < at::sequence_number::peek(); ++s)
      state_->call_of_sequence[s] = state_->call;
  state_->call = -1;
}

std::pair<std::int64_t, std::int64_t> Recorder::device_memory() const {
  const auto [free, total] = state_->allocator->getMemoryInfo(static_cast<c10::DeviceIndex>(state_->device));
  return {static_cast<std::int64_t>(total) - static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
}

nlohmann::json Recorder::report(bool with_events) const {
  using nlohmann::json;
  json steps = json::array(), phases = json::array();
  Counts peak;
  for (std::size_t i = 0; i < state_->phases.size(); ++i) {
    const PhaseRow& p = state_->phases[i];
    phases.push_back({{"step", p.step}, {"phase", p.phase}, {"peak", to_json(p.peak)}});
    peak = largest(peak, p.peak);
    if (i + 1 < state_->phases.size() && state_->phases[i + 1].step == p.step) continue;
    steps.push_back({{"step", p.step},
                     {"peak", to_json(peak)},
                     {"after", to_json(p.after)},
                     {"segments", p.segments},
                     {"retries", p.retries}});
    peak = {};
  }
  json out{{"steps", steps}, {"phases", phases}};
  if (!with_events) return out;
  json ops = json::array(), events = json::array();
  for (const OpRow& o : state_->ops) ops.push_back({o.name, o.call, o.phase, o.step, o.node});
  for (const EventRow& e : state_->events) events.push_back({e.kind, e.bytes, e.address, e.op});
  out["names"] = state_->names;
  out["ops"] = std::move(ops);
  out["events"] = std::move(events);
  return out;
}

}  // namespace memplan::torch_side
