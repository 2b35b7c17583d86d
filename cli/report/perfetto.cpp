// A trace in Perfetto's own format (protobuf): counters of memory, steps, phases and ops as slices, and the life of
// every allocation. Nothing is timed, so the clock counts the program's steps: one nanosecond for each op and each
// event.
//
// Field numbers are those of perfetto's trace_packet.proto, track_descriptor.proto, track_event.proto and
// interned_data.proto.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report/formats.h"
#include "cli/report/timeline.h"

namespace memplan::cli {

namespace {

/// A message of protobuf under construction.
class Message {
 public:
  Message& number(int field, std::uint64_t value) {
    varint(static_cast<std::uint64_t>(field) << 3);
    varint(value);
    return *this;
  }
  Message& text(int field, std::string_view value) {
    varint(static_cast<std::uint64_t>(field) << 3 | 2);
    varint(value.size());
    out_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.out_); }
  const std::string& bytes() const { return out_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 128; value >>= 7) out_ += static_cast<char>(value | 128);
    out_ += static_cast<char>(value);
  }
  std::string out_;
};

enum Field {
  trace_packet = 1,
  packet_timestamp = 8,
  packet_sequence = 10,
  packet_event = 11,
  packet_interned = 12,
  packet_flags = 13,
  packet_track = 60
};
enum EventType { slice_begin = 1, slice_end = 2, counter_value = 4 };

class Trace {
 public:
  explicit Trace(const Json& document) : document_(document), t_(timeline_of(document)), a_(t_.at("allocations")) {}

  std::string write() {
    const std::string path = document_.value("input", Json::object()).value("path", std::string("model"));
    const std::uint64_t process =
        track(Message()
                  .text(2, "memplan")
                  .message(3, Message().number(1, 1).text(6, "memplan: " + path.substr(path.find_last_of('/') + 1))),
              0);
    counters(process);
    program(process);
    lives(process);
    std::stable_sort(events_.begin(), events_.end(), [](const Timed& x, const Timed& y) { return x.time < y.time; });
    std::string out = std::move(head_);
    bool first = true;
    for (const Timed& e : events_) {
      Message packet;
      packet.number(packet_timestamp, static_cast<std::uint64_t>(e.time))
          .number(packet_sequence, 1)
          .number(packet_flags, first ? 3 : 2);
      if (first) packet.message(packet_interned, interned_);
      packet.text(packet_event, e.event);
      out += Message().message(trace_packet, packet).bytes();
      first = false;
    }
    return out;
  }

 private:
  struct Timed {
    std::int64_t time;
    std::string event;
  };

  /// Declares a track and returns its id.
  std::uint64_t track(Message descriptor, std::uint64_t parent) {
    const std::uint64_t id = ++tracks_;
    descriptor.number(1, id);
    if (parent) descriptor.number(5, parent);
    head_ +=
        Message().message(trace_packet, Message().number(packet_sequence, 1).message(packet_track, descriptor)).bytes();
    return id;
  }
  /// Tracks of one name below one parent are drawn together.
  std::uint64_t named_track(std::string_view name, std::uint64_t parent) {
    return track(Message().text(2, name), parent);
  }

  std::uint64_t name_id(const std::string& name) {
    const auto [entry, added] = names_.emplace(name, names_.size() + 1);
    if (added) interned_.message(2, Message().number(1, entry->second).text(2, name));
    return entry->second;
  }

  // The clock runs on by one for every event and for every op, so that ops without events have a width as well.
  std::int64_t time_of_op(std::size_t op) const {
    return t_["ops"]["first_event"][op].get<std::int64_t>() + static_cast<std::int64_t>(op);
  }
  std::int64_t time_of_event(std::int64_t event) const {
    const auto after = std::upper_bound(first_event_.begin(), first_event_.end(), event);
    return event + (after - first_event_.begin());
  }

  void begin(std::uint64_t on, std::int64_t time, const std::string& name, const Message* annotations = nullptr) {
    Message event;
    event.number(9, slice_begin).number(11, on).number(10, name_id(name));
    events_.push_back({time, event.bytes() + (annotations ? annotations->bytes() : std::string())});
  }
  void end(std::uint64_t on, std::int64_t time) {
    events_.push_back({time, Message().number(9, slice_end).number(11, on).bytes()});
  }

  static void note(Message& to, std::string_view name, std::string_view value) {
    if (!value.empty()) to.message(4, Message().text(10, name).text(6, value));
  }
  static void note(Message& to, std::string_view name, std::int64_t value) {
    to.message(4, Message().text(10, name).number(4, static_cast<std::uint64_t>(value)));
  }

  void counter(std::string_view name, const Json& values, std::int64_t more, std::uint64_t parent) {
    constexpr std::uint64_t unit_size_bytes = 3;
    const std::uint64_t on = track(Message().text(2, name).message(8, Message().number(3, unit_size_bytes)), parent);
    for (std::size_t i = 0; i < values.size(); ++i)
      events_.push_back({time_of_event(t_["at"][i].get<std::int64_t>()),
                         Message()
                             .number(9, counter_value)
                             .number(11, on)
                             .number(30, static_cast<std::uint64_t>(values[i].get<std::int64_t>() + more))
                             .bytes()});
  }

  void counters(std::uint64_t process) {
    first_event_ = t_["ops"]["first_event"].get<std::vector<std::int64_t>>();
    counter("process (nvidia-smi)", t_["reserved_bytes"], t_["context_bytes"].get<std::int64_t>(), process);
    counter("reserved", t_["reserved_bytes"], 0, process);
    counter("allocated", t_["allocated_bytes"], 0, process);
    counter("requested", t_["requested_bytes"], 0, process);
    const std::uint64_t kinds = named_track("requested by kind", process);
    for (const auto& [kind, values] : t_["by_category"].items()) counter(kind, values, 0, kinds);
  }

  /// Step, phase and op, nested on one track.
  void program(std::uint64_t process) {
    const std::uint64_t on = named_track("program", process);
    const Json &ops = t_["ops"], &spans = t_["spans"], &strings = t_["strings"];
    const std::size_t count = first_event_.size();
    const std::int64_t finish = time_of_event(t_["events"].get<std::int64_t>()) + 1;
    std::size_t op = 0;
    std::int64_t step = -1;
    for (std::size_t s = 0; s < spans.size(); ++s) {
      const std::int64_t first = spans[s]["begin"].get<std::int64_t>(), last = spans[s]["end"].get<std::int64_t>();
      const bool final = s + 1 == spans.size();
      // Ops without events may stand at the border; they belong to the span that begins there.
      while (op < count && first_event_[op] < first) ++op;
      const std::int64_t from = op < count ? time_of_op(op) : time_of_event(first);
      if (spans[s]["step"].get<std::int64_t>() != step) {
        if (step >= 0) end(on, from);
        step = spans[s]["step"].get<std::int64_t>();
        begin(on, from, step == 0 ? std::string("set-up") : "step " + std::to_string(step));
      }
      begin(on, from, spans[s]["phase"].get<std::string>());
      std::int64_t to = from;
      for (; op < count && (final || first_event_[op] < last); ++op) {
        to = op + 1 < count ? time_of_op(op + 1) : finish;
        Message notes;
        note(notes, "module", strings[ops["module"][op].get<std::size_t>()].get<std::string>());
        begin(on, time_of_op(op), strings[ops["name"][op].get<std::size_t>()].get<std::string>(), &notes);
        end(on, to);
      }
      end(on, final ? std::max(to, finish) : std::max(to, from));
    }
    if (step >= 0) end(on, finish);
  }

  /// Allocations as slices, in as many lanes below their kind as are alive at once.
  void lives(std::uint64_t process) {
    const std::uint64_t all = named_track("allocations", process);
    const std::int64_t finish = time_of_event(t_["events"].get<std::int64_t>()) + 1;
    const Json& strings = t_["strings"];
    const auto text = [&](const char* column, std::size_t row) {
      return strings[a_[column][row].get<std::size_t>()].get<std::string>();
    };
    struct Lanes {
      std::uint64_t track = 0;
      std::priority_queue<std::pair<std::int64_t, std::uint64_t>, std::vector<std::pair<std::int64_t, std::uint64_t>>,
                          std::greater<>>
          free_at;
    };
    std::map<std::int64_t, Lanes> kinds;
    for (std::size_t row = 0; row < a_["born"].size(); ++row) {
      const std::int64_t died = a_["died"][row].get<std::int64_t>(),
                         from = time_of_event(a_["born"][row].get<std::int64_t>()),
                         to = died < 0 ? finish : time_of_event(died);
      const std::int64_t kind = a_["category"][row].get<std::int64_t>();
      const std::string kind_name = t_["categories"][static_cast<std::size_t>(kind)].get<std::string>();
      Lanes& lanes = kinds[kind];
      std::uint64_t on = 0;
      if (!lanes.free_at.empty() && lanes.free_at.top().first <= from) {
        on = lanes.free_at.top().second;
        lanes.free_at.pop();
      } else {
        on = named_track(kind_name, all);
      }
      lanes.free_at.push({to, on});
      Message notes;
      note(notes, "bytes", a_["bytes"][row].get<std::int64_t>());
      note(notes, "block_bytes", a_["block_bytes"][row].get<std::int64_t>());
      for (const char* column : {"op", "module", "shape", "dtype", "reason"}) note(notes, column, text(column, row));
      begin(on, from, text("name", row).empty() ? kind_name : text("name", row), &notes);
      end(on, to);
    }
  }

  const Json& document_;
  const Json& t_;
  const Json& a_;
  std::vector<std::int64_t> first_event_;
  std::vector<Timed> events_;
  std::map<std::string, std::uint64_t> names_;
  Message interned_;
  std::string head_;  ///< the packets that declare tracks
  std::uint64_t tracks_ = 0;
};

}  // namespace

std::string render_perfetto(const Json& document, const View&) { return Trace(document).write(); }

}  // namespace memplan::cli
