// A memory snapshot as torch.cuda.memory._dump_snapshot() writes it: a pickle of plain dicts, lists, texts and numbers
// that PyTorch's viewer (pytorch.org/memory_viz) and torch/cuda/_memory_viz.py read. Times are events of the run.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cli/report/formats.h"
#include "cli/report/timeline.h"

namespace memplan::cli {

namespace {

/// The few opcodes of protocol 4 that the viewer's reader knows. Texts are written once and fetched from the memo
/// after.
class Pickle {
 public:
  Pickle() { out_ = {'\x80', '\x04'}; }

  void number(std::int64_t n) {
    if (n >= 0 && n < 256) {
      out_ += 'K';
      little(n, 1);
    } else if (n >= 0 && n < 65536) {
      out_ += 'M';
      little(n, 2);
    } else if (n >= INT32_MIN && n <= INT32_MAX) {
      out_ += 'J';
      little(n, 4);
    } else {
      out_ += "\x8a\x08";
      little(n, 8);
    }
  }
  void real(double value) {
    std::uint64_t bits = 0;
    static_assert(sizeof bits == sizeof value);
    std::memcpy(&bits, &value, sizeof bits);
    out_ += 'G';
    for (int shift = 56; shift >= 0; shift -= 8) out_ += static_cast<char>(bits >> shift);
  }
  void boolean(bool value) { out_ += value ? '\x88' : '\x89'; }
  void text(std::string_view value) {
    const auto [entry, added] = memo_.emplace(value, memo_.size());
    if (!added) {
      if (entry->second < 256) {
        out_ += 'h';
        little(static_cast<std::int64_t>(entry->second), 1);
      } else {
        out_ += 'j';
        little(static_cast<std::int64_t>(entry->second), 4);
      }
      return;
    }
    out_ += 'X';
    little(static_cast<std::int64_t>(value.size()), 4);
    out_ += value;
    out_ += '\x94';
  }
  // Values between begin and end belong to the list; keys and values in turn to the dict.
  void begin_list() { out_ += "]("; }
  void end_list() { out_ += 'e'; }
  void next_batch() {
    out_ += "e(";
  }  ///< between items: the viewer hands all of a batch to one call, which has a limit
  void empty_list() { out_ += ']'; }
  void begin_dict() { out_ += "}("; }
  void end_dict() { out_ += 'u'; }
  void pair() { out_ += '\x86'; }  ///< of the two values before

  void entry(std::string_view key, std::int64_t n) { text(key), number(n); }
  void entry(std::string_view key, std::string_view value) { text(key), text(value); }

  std::string finish() { return std::move(out_ += '.'); }

 private:
  void little(std::int64_t n, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(n >> (8 * i));
  }
  std::string out_;
  std::unordered_map<std::string, std::size_t> memo_;
};

class Snapshot {
 public:
  explicit Snapshot(const Json& document) : t_(timeline_of(document)), a_(t_.at("allocations")), document_(document) {}

  std::string write() {
    p_.begin_dict();
    p_.text("segments");
    segments();
    p_.text("device_traces");
    p_.begin_list();
    trace();
    p_.end_list();
    settings();
    p_.text("external_annotations");
    p_.empty_list();
    p_.end_dict();
    return p_.finish();
  }

 private:
  // Addresses of the model count from 0, which readers take for "no address"; a CUDA device's begin about here.
  static constexpr std::int64_t base = 0x7f0000000000;

  std::string text_of(const char* column, std::size_t row) const {
    return t_["strings"][a_[column][row].get<std::size_t>()].get<std::string>();
  }
  std::int64_t number_of(const char* column, std::size_t row) const { return a_[column][row].get<std::int64_t>(); }

  std::string kind_of(std::size_t row) const {
    return t_["categories"][static_cast<std::size_t>(number_of("category", row))].get<std::string>();
  }

  /// A stack of two: what was made, and the module that made it.
  void frames(std::int64_t row) {
    p_.text("frames");
    if (row < 0) {
      p_.empty_list();
      return;
    }
    const auto r = static_cast<std::size_t>(row);
    const std::string op = text_of("op", r), name = text_of("name", r), module = text_of("module", r),
                      kind = kind_of(r);
    p_.begin_list();
    frame(name.empty() || name == op ? kind : name + " (" + kind + ")", op.empty() ? "memplan" : op);
    frame(module.empty() ? "model" : module, "module");
    p_.end_list();
  }
  void frame(std::string_view name, std::string_view file) {
    p_.begin_dict();
    p_.entry("filename", file);
    p_.entry("line", 0);
    p_.entry("name", name);
    p_.end_dict();
  }

  void segments() {
    p_.begin_list();
    for (const Json& s : t_["arena_at_end"]["segments"]) {
      std::int64_t allocated = 0, requested = 0;
      for (const Json& b : s["blocks"])
        if (b[2] != -1) allocated += b[0].get<std::int64_t>(), requested += b[1].get<std::int64_t>();
      p_.begin_dict();
      p_.entry("device", 0);
      p_.entry("address", base + s["address"].get<std::int64_t>());
      p_.entry("total_size", s["bytes"].get<std::int64_t>());
      p_.entry("allocated_size", allocated);
      p_.entry("active_size", allocated);
      p_.entry("requested_size", requested);
      p_.entry("stream", s["stream"].get<std::int64_t>());
      p_.entry("segment_type", s["pool"].get<std::string>());
      p_.text("segment_pool_id");
      p_.number(0), p_.number(0), p_.pair();
      p_.text("is_expandable");
      p_.boolean(s["expandable"].get<bool>());
      p_.text("frames");
      p_.empty_list();
      p_.text("blocks");
      blocks(s);
      p_.end_dict();
    }
    p_.end_list();
  }
  void blocks(const Json& segment) {
    std::int64_t at = base + segment["address"].get<std::int64_t>();
    p_.begin_list();
    std::size_t written = 0;
    for (const Json& b : segment["blocks"]) {
      if (++written % 1000 == 0) p_.next_batch();
      const bool used = b[2] != -1;
      p_.begin_dict();
      p_.entry("address", at);
      p_.entry("size", b[0].get<std::int64_t>());
      p_.entry("requested_size", used ? b[1].get<std::int64_t>() : 0);
      p_.entry("state", used ? "active_allocated" : "inactive");
      frames(b[2].get<std::int64_t>());
      p_.end_dict();
      at += b[0].get<std::int64_t>();
    }
    p_.end_list();
  }

  void action(std::string_view what, std::int64_t address, std::int64_t bytes, std::int64_t stream, std::int64_t event,
              std::int64_t row) {
    p_.begin_dict();
    p_.entry("action", what);
    p_.entry("addr", base + address);
    p_.entry("size", bytes);
    p_.entry("stream", stream);
    p_.entry("time_us", event);
    p_.entry("compile_context", "N/A");
    p_.entry("user_metadata", "");
    // The viewer colours by category, and needs one entry of the category "unknown" for that.
    if (row >= 0)
      p_.entry("category", kind_of(static_cast<std::size_t>(row)));
    else if (what.starts_with("segment"))
      p_.entry("category", "unknown");
    frames(row);
    p_.end_dict();
  }

  /// Births, deaths and driver calls in the order of events; a segment is there before the block that wanted it.
  void trace() {
    struct Entry {
      std::int64_t event;
      int order;  // within an event
      std::size_t at;
    };
    std::vector<Entry> entries;
    const Json& driver = t_["driver"];
    for (std::size_t i = 0; i < driver.size(); ++i) entries.push_back({driver[i]["event"].get<std::int64_t>(), 0, i});
    for (std::size_t row = 0; row < a_["born"].size(); ++row) {
      entries.push_back({number_of("born", row), 1, row});
      if (number_of("died", row) >= 0) entries.push_back({number_of("died", row), 2, row});
    }
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& x, const Entry& y) {
      return x.event != y.event ? x.event < y.event : x.order < y.order;
    });
    p_.begin_list();
    std::size_t written = 0;
    for (const Entry& e : entries) {
      if (++written % 500 == 0) p_.next_batch();
      if (e.order == 0) {
        const Json& d = driver[e.at];
        action(d["action"].get<std::string>(), d["address"].get<std::int64_t>(), d["bytes"].get<std::int64_t>(),
               d["stream"].get<std::int64_t>(), e.event, -1);
        continue;
      }
      const std::int64_t stream = a_.contains("stream") ? number_of("stream", e.at) : 0,
                         address = number_of("address", e.at), bytes = number_of("bytes", e.at);
      if (e.order == 1) {
        action("alloc", address, bytes, stream, e.event, static_cast<std::int64_t>(e.at));
      } else {
        action("free_requested", address, bytes, stream, e.event, -1);
        action("free_completed", address, bytes, stream, e.event, -1);
      }
    }
    p_.end_list();
  }

  void settings() {
    const bool expandable = document_.value("setup", Json::object()).value("expandable_segments", false);
    p_.text("allocator_settings");
    p_.begin_dict();
    p_.entry("PYTORCH_CUDA_ALLOC_CONF", expandable ? "expandable_segments:True" : "");
    p_.entry("max_split_size", -1);
    p_.text("garbage_collection_threshold");
    p_.real(0);
    p_.text("expandable_segments");
    p_.boolean(expandable);
    p_.end_dict();
  }

  const Json& t_;
  const Json& a_;
  const Json& document_;
  Pickle p_;
};

}  // namespace

std::string render_snapshot(const Json& document, const View&) { return Snapshot(document).write(); }

}  // namespace memplan::cli
