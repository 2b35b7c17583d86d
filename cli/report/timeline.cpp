#include "cli/report/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>

#include "cli/program/settings.h"
#include "cli/report/report.h"
#include "estimators/base/dtype.h"
#include "estimators/base/error.h"
#include "estimators/estimate/reasons.h"

namespace memplan::cli {

namespace {

using Json = nlohmann::ordered_json;
using Numbers = std::vector<std::int64_t>;

/// Every text once; columns hold indexes. Index 0 is the empty text.
class Strings {
 public:
  Strings() { id({}); }
  std::int64_t id(const std::string& text) {
    const auto [entry, added] = ids_.emplace(text, static_cast<std::int64_t>(texts_.size()));
    if (added) texts_.push_back(clean(text));
    return entry->second;
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::unordered_map<std::string, std::int64_t> ids_;
  std::vector<std::string> texts_;
};

class Section {
 public:
  explicit Section(const RunRecord& run) : run_(run), s_(run.schedule) {}

  Json build() {
    Json j;
    j["events"] = run_.timeline.samples.size();
    j["peak_event"] = run_.peak_event;
    j["limited"] = run_.limited;
    j["context_bytes"] = run_.context.count;
    j["spans"] = spans();
    curves(j);
    j["categories"] = Json::array();
    for (int c = 0; c < category_count; ++c) j["categories"].push_back(name_of(static_cast<Category>(c)));
    j["ops"] = ops();
    j["allocations"] = allocations();
    j["arena"] = arena(run_.map.at_event);
    j["arena_at_end"] = arena(run_.map.at_end);
    j["driver"] = driver();
    j["strings"] = strings_.texts();
    return j;
  }

 private:
  std::string name(std::int32_t id) const { return id < 0 ? std::string() : s_.names[static_cast<std::size_t>(id)]; }
  std::string module_of(std::int32_t op) const {
    if (op < 0) return {};
    const std::int32_t scope = s_.ops[static_cast<std::size_t>(op)].scope;
    return scope < 0 ? std::string() : run_.scopes[static_cast<std::size_t>(scope)].path;
  }

  /// Ops in a row of one step and phase. `begin` is its first event, `end` the first one after it.
  Json spans() {
    Json list = Json::array();
    const auto events = static_cast<std::int32_t>(run_.timeline.samples.size());
    for (std::size_t i = 0; i < s_.ops.size(); ++i) {
      const OpRecord& op = s_.ops[i];
      if (op.first_event >= events) break;
      if (i > 0 && op.step == s_.ops[i - 1].step && op.phase == s_.ops[i - 1].phase) continue;
      borders_.push_back(op.first_event);
      list.push_back({{"step", op.step}, {"phase", name_of(op.phase)}, {"begin", op.first_event}, {"end", events}});
      if (list.size() > 1) list[list.size() - 2]["end"] = op.first_event;
    }
    return list;
  }

  /// The events that the curves keep: of every stretch its highest and its lowest point of `allocated` and the highest
  /// of `requested` and `reserved`, the borders of phases with the event before them, and the peak.
  std::vector<std::size_t> kept_events() const {
    const auto& samples = run_.timeline.samples;
    std::vector<std::size_t> kept;
    if (samples.size() <= timeline_points) {
      for (std::size_t i = 0; i < samples.size(); ++i) kept.push_back(i);
      return kept;
    }
    const std::size_t stretches = timeline_points / 4;
    for (std::size_t n = 0; n < stretches; ++n) {
      const std::size_t begin = samples.size() * n / stretches, end = samples.size() * (n + 1) / stretches;
      std::size_t high = begin, low = begin, requested = begin, reserved = begin;
      for (std::size_t i = begin; i < end; ++i) {
        if (samples[i].allocated > samples[high].allocated) high = i;
        if (samples[i].allocated < samples[low].allocated) low = i;
        if (samples[i].requested > samples[requested].requested) requested = i;
        if (samples[i].reserved > samples[reserved].reserved) reserved = i;
      }
      kept.insert(kept.end(), {high, low, requested, reserved});
    }
    if (borders_.size() <= timeline_points / 4)
      for (const std::int32_t b : borders_) {
        kept.push_back(static_cast<std::size_t>(b));
        if (b > 0) kept.push_back(static_cast<std::size_t>(b) - 1);
      }
    kept.push_back(static_cast<std::size_t>(std::max(run_.peak_event, 0)));
    kept.push_back(samples.size() - 1);
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    return kept;
  }

  void curves(Json& j) const {
    const std::vector<std::size_t> kept = kept_events();
    Numbers at, requested, allocated, reserved;
    std::array<Numbers, category_count> by_category;
    std::array<std::int64_t, category_count> level{};
    std::size_t next = 0;
    for (std::size_t i = 0; i < run_.timeline.samples.size() && next < kept.size(); ++i) {
      const Event& e = s_.events[i];
      if (e.allocation >= 0) {
        const Allocation& a = s_.allocations[static_cast<std::size_t>(e.allocation)];
        level[static_cast<std::size_t>(a.category)] += e.kind == Event::Kind::alloc ? a.size.count : -a.size.count;
      }
      if (i != kept[next]) continue;
      ++next;
      const Sample& sample = run_.timeline.samples[i];
      at.push_back(static_cast<std::int64_t>(i));
      requested.push_back(sample.requested);
      allocated.push_back(sample.allocated);
      reserved.push_back(sample.reserved);
      for (std::size_t c = 0; c < level.size(); ++c) by_category[c].push_back(level[c]);
    }
    j["at"] = at;
    j["requested_bytes"] = requested;
    j["allocated_bytes"] = allocated;
    j["reserved_bytes"] = reserved;
    Json categories = Json::object();
    for (std::size_t c = 0; c < by_category.size(); ++c)
      if (std::any_of(by_category[c].begin(), by_category[c].end(), [](std::int64_t b) { return b != 0; }))
        categories[name_of(static_cast<Category>(c))] = by_category[c];
    j["by_category"] = categories;
  }

  Json ops() {
    Numbers names, modules, first;
    for (std::size_t i = 0; i < s_.ops.size() && i < timeline_ops; ++i) {
      names.push_back(strings_.id(name(s_.ops[i].name)));
      modules.push_back(strings_.id(module_of(static_cast<std::int32_t>(i))));
      first.push_back(s_.ops[i].first_event);
    }
    return {{"of", s_.ops.size()}, {"name", names}, {"module", modules}, {"first_event", first}};
  }

  bool alive_at_peak(const Allocation& a) const {
    return a.born >= 0 && a.born <= run_.peak_event && (a.died < 0 || a.died > run_.peak_event);
  }

  /// Indexes of the allocations that the document keeps, in order of birth; all of them when there are few.
  std::vector<std::size_t> kept_allocations() const {
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < s_.allocations.size(); ++i)
      if (s_.allocations[i].born >= 0 && s_.allocations[i].size.count > 0) kept.push_back(i);
    if (kept.size() > timeline_allocations) {
      std::stable_sort(kept.begin(), kept.end(), [&](std::size_t x, std::size_t y) {
        const Allocation &a = s_.allocations[x], &b = s_.allocations[y];
        const bool first = alive_at_peak(a), second = alive_at_peak(b);
        return first != second ? first : a.size > b.size;
      });
      kept.resize(timeline_allocations);
      std::sort(kept.begin(), kept.end());
    }
    return kept;
  }

  Json allocations() {
    const std::vector<std::size_t> kept = kept_allocations();
    row_.assign(s_.allocations.size(), -1);
    Numbers names, ops, modules, categories, bytes, block_bytes, addresses, born, died, reasons, dtypes, shapes,
        streams;
    bool streamed = false;
    std::size_t all = 0;
    for (const Allocation& a : s_.allocations) all += a.born >= 0 && a.size.count > 0;
    for (const std::size_t i : kept) {
      const Allocation& a = s_.allocations[i];
      row_[i] = static_cast<std::int64_t>(names.size());
      const std::string op = a.op < 0 ? std::string() : name(s_.ops[static_cast<std::size_t>(a.op)].name);
      names.push_back(strings_.id(a.label >= 0 ? name(a.label) : op));
      ops.push_back(strings_.id(op));
      modules.push_back(strings_.id(module_of(a.op)));
      categories.push_back(static_cast<std::int64_t>(a.category));
      bytes.push_back(a.size.count);
      block_bytes.push_back(i < run_.timeline.block_bytes.size() ? run_.timeline.block_bytes[i] : a.size.count);
      addresses.push_back(i < run_.timeline.addresses.size() ? static_cast<std::int64_t>(run_.timeline.addresses[i])
                                                             : 0);
      born.push_back(a.born);
      died.push_back(a.died);
      reasons.push_back(strings_.id(a.reason >= 0 ? name(a.reason) : default_reason(a.category)));
      const TensorShape* shape = a.shape_at < 0 ? nullptr : &s_.shapes[static_cast<std::size_t>(a.shape_at)];
      dtypes.push_back(strings_.id(shape ? std::string(name_of(static_cast<DType>(shape->dtype))) : std::string()));
      shapes.push_back(strings_.id(shape ? shape_text(shape->sizes) : std::string()));
      streams.push_back(a.stream);
      streamed |= a.stream != 0;
    }
    Json j{{"of", all},
           {"name", names},
           {"op", ops},
           {"module", modules},
           {"category", categories},
           {"bytes", bytes},
           {"block_bytes", block_bytes},
           {"address", addresses},
           {"born", born},
           {"died", died},
           {"reason", reasons},
           {"dtype", dtypes},
           {"shape", shapes}};
    if (streamed) j["stream"] = streams;
    return j;
  }

  /// Blocks as [bytes, requested, allocation], in the order of their addresses; an allocation of -1 is a free block, of
  /// -2 one whose allocation the document does not keep.
  Json arena(const std::vector<MappedSegment>& segments) const {
    Json list = Json::array();
    std::size_t blocks = 0, left_out = 0;
    std::int64_t left_out_bytes = 0;
    for (const MappedSegment& s : segments) {
      blocks += s.blocks.size();
      if (blocks > timeline_blocks) {
        ++left_out;
        left_out_bytes += s.bytes;
        continue;
      }
      Json pieces = Json::array();
      for (const MappedBlock& b : s.blocks) {
        const std::int64_t row = b.allocation < 0 ? -1 : row_[static_cast<std::size_t>(b.allocation)];
        pieces.push_back({b.bytes, b.requested, b.allocation >= 0 && row < 0 ? -2 : row});
      }
      list.push_back({{"address", s.address},
                      {"bytes", s.bytes},
                      {"stream", s.stream},
                      {"pool", s.small ? "small" : "large"},
                      {"expandable", s.expandable},
                      {"blocks", pieces}});
    }
    return {{"segments", list}, {"left_out_segments", left_out}, {"left_out_bytes", left_out_bytes}};
  }

  Json driver() const {
    static constexpr const char* actions[] = {"segment_alloc", "segment_free", "segment_map", "segment_unmap"};
    Json list = Json::array();
    for (const DriverCall& d : run_.map.driver)
      list.push_back({{"event", d.event},
                      {"action", actions[static_cast<std::size_t>(d.call.kind)]},
                      {"address", d.call.address},
                      {"bytes", d.call.bytes},
                      {"stream", d.call.stream}});
    return list;
  }

  const RunRecord& run_;
  const Schedule& s_;
  Strings strings_;
  std::vector<std::int32_t> borders_;
  std::vector<std::int64_t> row_;  ///< per allocation of the schedule: its row in the document, or -1
};

Json suggestion(const RunRecord& run, const Candidate& c, const Candidate& present, const char* kind) {
  Json settings = Json::object();
  for (const char* framework : {"pytorch", "hf", "accelerate", "deepspeed", "megatron", "torchtitan", "lightning"})
    settings[framework] = framework_settings(c.setup, run.parts.at(c.flags), framework);
  Json cautions = Json::array();
  for (const std::string& text : c.cautions) cautions.push_back(clean(text));
  const double before = present.time.total();
  // Per sample, since the setups may take different numbers of them in a step; in thousandths, so that no rounding
  // shows.
  const double ratio = before > 0 && c.samples > 0 ? c.time.total() / before * static_cast<double>(present.samples) /
                                                         static_cast<double>(c.samples)
                                                   : 0;
  return {{"kind", kind},
          {"flags", clean(c.flags)},
          {"peak_bytes", c.peak.count},
          {"verdict", name_of(c.verdict)},
          {"headroom_bytes", c.headroom.count},
          {"knobs_turned", c.changes},
          {"time_per_mille", std::llround(ratio * 1000)},
          {"cautions", cautions},
          {"settings", settings}};
}

}  // namespace

Json timeline_section(const RunRecord& run) { return Section(run).build(); }

const Json& timeline_of(const Json& document) {
  if (!document.contains("timeline"))
    fail_input("the report was saved without its timeline, and this format is made from it", {},
               "make the report again with --timeline, or the format from the model itself");
  return document["timeline"];
}

void add_run(Json& document, const RunRecord& run) {
  document["timeline"] = timeline_section(run);
  Json curves = Json::array();
  for (const ScaleCurve& c : run.curves) {
    Json points = Json::array();
    for (const ScalePoint& p : c.points)
      points.push_back({{"size", p.size},
                        {"peak_bytes", p.peak.count},
                        {"requested_bytes", p.requested.count},
                        {"verdict", name_of(p.verdict)}});
    curves.push_back({{"dimension", c.dimension}, {"here", c.here}, {"points", points}});
  }
  document["scaling"] = curves;
  Json cards = Json::array();
  for (const Card& c : run.cards)
    cards.push_back({{"key", c.device.key},
                     {"name", c.device.name},
                     {"usable_bytes", c.device.total.count},
                     {"peak_bytes", c.peak.count},
                     {"verdict", name_of(c.verdict)}});
  document["alternatives"]["devices"] = cards;
  if (!run.suggestion) return;
  const Suggestion& s = *run.suggestion;
  Json& list = document["suggestions"] = Json::array();
  if (s.smallest) list.push_back(suggestion(run, *s.smallest, s.present, "smallest"));
  for (const Candidate& c : s.fitting)
    if (!s.smallest || c.flags != s.smallest->flags)
      list.push_back(suggestion(run, c, s.present, &c == &s.fitting.front() ? "fastest" : "fits"));
}

}  // namespace memplan::cli
