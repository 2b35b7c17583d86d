#include "estimators/measured/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "estimators/base/error.h"
#include "estimators/measured/pickle.h"

namespace memplan {

using nlohmann::json;

namespace {

/// Below the packages of a Python the package tells, wherever that Python lies (build/torch/lib/…); elsewhere a folder
/// "torch", as in a checkout of PyTorch.
bool of_torch(std::string_view path) {
  for (const std::string_view packages : {"/site-packages/", "/dist-packages/"})
    if (const auto at = path.rfind(packages); at != std::string_view::npos)
      return path.substr(at + packages.size()).starts_with("torch/");
  return path.find("/torch/") != std::string_view::npos;
}

/// Pickles and JSON, asked in the same words.
struct PickleDocument {
  using Value = Pickle::Value;
  const Pickle& p;
  bool find(Value v, std::string_view key, Value& out) const { return p.find(v, key, out); }
  std::int64_t integer(Value v) const { return p.integer(v); }
  std::string text(Value v) const { return p.text(v); }
  bool is_list(Value v) const { return p.kind(v) == Pickle::Kind::list || p.kind(v) == Pickle::Kind::tuple; }
  std::size_t count(Value v) const { return p.items(v).size(); }
  /// PyTorch's items are distinct values, and segments are walked twice.
  std::size_t most_visits() const { return 2 * p.size(); }
  Value item(Value v, std::size_t i) const { return p.items(v)[i]; }
};

struct JsonDocument {
  using Value = const json*;
  bool find(Value v, std::string_view key, Value& out) const {
    if (!v->is_object()) return false;
    const auto it = v->find(std::string(key));
    if (it == v->end()) return false;
    out = &*it;
    return true;
  }
  std::int64_t integer(Value v) const {
    if (!v->is_number_integer()) fail_input("the snapshot has something else where a number belongs");
    return v->get<std::int64_t>();
  }
  std::string text(Value v) const {
    if (!v->is_string()) fail_input("the snapshot has something else where a text belongs");
    return v->get<std::string>();
  }
  bool is_list(Value v) const { return v->is_array(); }
  std::size_t count(Value v) const { return v->size(); }
  std::size_t most_visits() const { return SIZE_MAX; }  // a tree
  Value item(Value v, std::size_t i) const { return &(*v)[i]; }
};

template <class D>
class Reader {
 public:
  using Value = typename D::Value;
  explicit Reader(D document) : d_(document), most_(document.most_visits()) {}

  Snapshot read(Value root) {
    Value segments{}, traces{};
    const bool has_segments = d_.find(root, "segments", segments), has_traces = d_.find(root, "device_traces", traces);
    if ((!has_segments && !has_traces) || (has_segments && !d_.is_list(segments)) ||
        (has_traces && !d_.is_list(traces)))
      fail_input("the file is no memory snapshot of PyTorch", {},
                 "write one with torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")");
    choose_device(has_segments ? &segments : nullptr, has_traces ? &traces : nullptr);
    if (has_segments) each(segments, [&](Value s) { segment(s); });
    if (has_traces && s_.device < static_cast<std::int64_t>(d_.count(traces)))
      trace(d_.item(traces, static_cast<std::size_t>(s_.device)));
    return std::move(s_);
  }

 private:
  template <class F>
  void each(Value list, F&& f) {
    if (!d_.is_list(list)) fail_input("the snapshot has something else where a list belongs");
    for (std::size_t i = 0; i < d_.count(list); ++i) {
      // One list may stand in many places, so the work is bounded and not only the file.
      if (++visited_ > most_) fail_input("the snapshot is larger than memplan reads");
      f(d_.item(list, i));
    }
  }

  std::int64_t number(Value v, std::string_view key, std::int64_t otherwise) const {
    Value out{};
    return d_.find(v, key, out) ? d_.integer(out) : otherwise;
  }
  std::int64_t size(Value v, std::string_view key) const {
    const std::int64_t n = number(v, key, 0);
    if (n < 0) fail_input("the snapshot has a negative size");
    return n;
  }

  void choose_device(const Value* segments, const Value* traces) {
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> weight;  // reserved, events
    if (segments)
      each(*segments, [&](Value s) {
        auto& w = weight[number(s, "device", 0)].first;
        w = checked_add(w, size(s, "total_size"));
      });
    if (traces)
      for (std::size_t i = 0; i < d_.count(*traces); ++i)
        if (d_.is_list(d_.item(*traces, i)) && d_.count(d_.item(*traces, i)) > 0)
          weight[static_cast<std::int64_t>(i)].second = static_cast<std::int64_t>(d_.count(d_.item(*traces, i)));
    s_.devices = static_cast<std::int64_t>(weight.size());
    std::pair<std::int64_t, std::int64_t> best{-1, -1};
    for (const auto& [device, w] : weight)
      if (w > best) best = w, s_.device = device;
    if (s_.device < 0) fail_input("the snapshot has a device of no number");
  }

  void segment(Value v) {
    if (number(v, "device", 0) != s_.device) return;
    s_.reserved = checked_add(s_.reserved, size(v, "total_size"));
    s_.allocated = checked_add(s_.allocated, size(v, "allocated_size"));
    Value blocks{};
    if (!d_.find(v, "blocks", blocks)) return;
    std::int64_t address = number(v, "address", 0);
    each(blocks, [&](Value b) {
      Value state{};
      const std::int64_t bytes = size(b, "size");
      const std::int64_t at = number(b, "address", address);
      address = checked_add(at, bytes);
      if (!d_.find(b, "state", state) || d_.text(state) != "active_allocated") return;
      const std::int64_t requested = number(b, "requested_size", bytes);
      if (requested < 0) fail_input("the snapshot has a negative size");
      s_.requested = checked_add(s_.requested, requested);
      s_.active.push_back({static_cast<std::uint64_t>(at), requested, place_text(b)});
    });
  }

  void trace(Value list) {
    each(list, [&](Value e) {
      Value action{};
      if (!d_.find(e, "action", action)) fail_input("an event of the snapshot's trace has no action");
      const std::string word = d_.text(action);
      MeasuredEvent::Kind kind;
      if (word == "alloc")
        kind = MeasuredEvent::Kind::alloc;
      else if (word == "free_requested")
        kind = MeasuredEvent::Kind::free;
      else if (word == "segment_alloc" || word == "segment_map")
        kind = MeasuredEvent::Kind::segment_alloc;
      else if (word == "segment_free" || word == "segment_unmap")
        kind = MeasuredEvent::Kind::segment_free;
      else if (word == "oom")
        kind = MeasuredEvent::Kind::out_of_memory;
      else
        return;
      SnapshotEntry entry{{kind, size(e, "size"), static_cast<std::uint64_t>(number(e, "addr", 0)), -1}, -1};
      if (kind == MeasuredEvent::Kind::alloc) {
        const std::string text = place_text(e);
        const auto [it, fresh] = place_ids_.try_emplace(text, static_cast<std::int32_t>(s_.places.size()));
        if (fresh) s_.places.push_back(text);
        entry.where = it->second;
      }
      s_.trace.push_back(entry);
    });
  }

  /// The innermost frame that is neither PyTorch's nor C++: the line of the user's program.
  std::string place_text(Value v) {
    Value frames{};
    if (!d_.find(v, "frames", frames) || !d_.is_list(frames)) return {};
    std::string first;
    for (std::size_t i = 0; i < std::min<std::size_t>(d_.count(frames), 128); ++i) {
      const Value f = d_.item(frames, i);
      Value file{}, name{};
      if (!d_.find(f, "filename", file) || !d_.find(f, "name", name)) continue;
      const std::string path = d_.text(file);
      if (path.empty() || path == "??") continue;
      const std::string text =
          fmt::format("{}:{} {}", path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1),
                      number(f, "line", 0), d_.text(name));
      if (first.empty()) first = text;
      const bool python = path.ends_with(".py");
      if (python && !of_torch(path) && path.find('<') == std::string::npos) return text;
    }
    return first;
  }

  D d_;
  std::size_t most_;
  Snapshot s_;
  std::size_t visited_ = 0;
  std::unordered_map<std::string, std::int32_t> place_ids_;
};

}  // namespace

Snapshot snapshot_from_pickle(std::string_view bytes) {
  const Pickle pickle = Pickle::parse(bytes);
  return Reader<PickleDocument>({pickle}).read(pickle.root());
}

Snapshot snapshot_from_json(const json& j) { return Reader<JsonDocument>({}).read(&j); }

namespace {

using Kind = MeasuredEvent::Kind;

/// Bytes over the trace. A trace may begin in the middle of a run, so its start is its end, rolled back.
struct Levels {
  std::int64_t before = 0, reserved_before = 0, peak = 0, reserved_peak = 0;
  std::size_t peak_at = 0;  ///< event
};

Levels levels_of(const Snapshot& s) {
  std::int64_t net = 0, net_reserved = 0;
  for (const SnapshotEntry& e : s.trace) {
    if (e.event.kind == Kind::alloc) net = checked_add(net, e.event.bytes);
    if (e.event.kind == Kind::free) net = checked_add(net, -e.event.bytes);
    if (e.event.kind == Kind::segment_alloc) net_reserved = checked_add(net_reserved, e.event.bytes);
    if (e.event.kind == Kind::segment_free) net_reserved = checked_add(net_reserved, -e.event.bytes);
  }
  Levels l;
  std::int64_t level = l.before = l.peak = std::max<std::int64_t>(0, checked_add(s.requested, checked_mul(net, -1)));
  std::int64_t reserved = l.reserved_before = l.reserved_peak =
      std::max<std::int64_t>(0, checked_add(s.reserved, checked_mul(net_reserved, -1)));
  for (std::size_t i = 0; i < s.trace.size(); ++i) {
    const MeasuredEvent& e = s.trace[i].event;
    if (e.kind == Kind::alloc) level = checked_add(level, e.bytes);
    if (e.kind == Kind::free) level = checked_add(level, -e.bytes);
    if (e.kind == Kind::segment_alloc) reserved = checked_add(reserved, e.bytes);
    if (e.kind == Kind::segment_free) reserved = checked_add(reserved, -e.bytes);
    if (level > l.peak) l.peak = level, l.peak_at = i;
    l.reserved_peak = std::max(l.reserved_peak, reserved);
  }
  return l;
}

/// Alive at the peak, largest first: asked for up to it and not freed, and what the trace does not know because it is
/// older.
std::vector<MeasuredBlock> alive_at(const Snapshot& s, std::size_t peak_at) {
  std::unordered_map<std::uint64_t, MeasuredBlock> alive;
  std::unordered_map<std::uint64_t, bool> known;
  for (const SnapshotEntry& e : s.trace)
    if (e.event.kind == Kind::alloc || e.event.kind == Kind::free)
      known.emplace(e.event.address, e.event.kind == Kind::alloc);
  for (const SnapshotBlock& b : s.active)
    if (!known.count(b.address)) alive[b.address] = {b.requested, b.where};
  for (std::size_t i = 0; i < s.trace.size(); ++i) {
    const SnapshotEntry& e = s.trace[i];
    if (i <= peak_at && e.event.kind == Kind::alloc)
      alive[e.event.address] = {e.event.bytes, s.places[static_cast<std::size_t>(e.where)]};
    if (i <= peak_at && e.event.kind == Kind::free) alive.erase(e.event.address);
    // Freed after the peak without having been asked for in the trace: it was there all along.
    if (i > peak_at && e.event.kind == Kind::free) {
      const auto it = known.find(e.event.address);
      if (it != known.end() && !it->second)
        alive[e.event.address] = {e.event.bytes, "made before the trace begins"}, known.erase(it);
    }
  }
  std::vector<MeasuredBlock> out;
  for (auto& [address, block] : alive) out.push_back(std::move(block));
  std::sort(out.begin(), out.end(),
            [](const auto& a, const auto& b) { return a.bytes != b.bytes ? a.bytes > b.bytes : a.where < b.where; });
  return out;
}

}  // namespace

Measurement measurement_from_snapshot(const Snapshot& s, const std::string& path) {
  Measurement m;
  m.source = "the memory snapshot " + path;
  if (s.devices > 1)
    m.notes.push_back(
        fmt::format("the snapshot has {} devices; device {}, which holds most, is compared", s.devices, s.device));
  if (s.trace.empty()) {
    m.peak.reserved = Bytes(s.reserved);
    m.notes.push_back(
        fmt::format("the snapshot has no trace, so that of its peak only the reserved bytes are known; {} were "
                    "requested when it was taken. "
                    "torch.cuda.memory._record_memory_history() before the first step records one",
                    to_human(Bytes(s.requested))));
    return m;
  }
  for (const SnapshotEntry& e : s.trace)
    if (e.event.kind == Kind::out_of_memory) m.out_of_memory = "the trace has an out-of-memory event";
  const Levels levels = levels_of(s);
  m.peak.requested = Bytes(levels.peak);
  m.peak.reserved = Bytes(levels.reserved_peak);
  m.largest_at_peak = alive_at(s, levels.peak_at);
  if (levels.before > 0)
    m.notes.push_back(fmt::format("{} were in use before the trace begins", to_human(Bytes(levels.before))));
  // A trace from the first allocation on is the whole run, which can be compared event by event.
  if (levels.before == 0 && levels.reserved_before == 0)
    for (const SnapshotEntry& e : s.trace) m.events.push_back(e.event);
  return m;
}

}  // namespace memplan
