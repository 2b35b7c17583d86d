#include "estimators/measured/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "estimators/base/error.h"
#include "estimators/measured/snapshot.h"

namespace memplan {

using nlohmann::json;

namespace {

constexpr std::streamoff largest_file = std::streamoff{1} << 31;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file)
    fail_input("the file cannot be read", path,
               "give a memory snapshot, a memory_stats() JSON or a figure such as 11.3GiB");
  if (file.tellg() > largest_file)
    fail_input("the file is larger than 2 GiB", path, "record fewer events: _record_memory_history(max_entries=…)");
  std::string text(static_cast<std::size_t>(file.tellg()), '\0');
  file.seekg(0);
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size()))) fail_input("the file cannot be read", path);
  return text;
}

/// memory_stats() is flat ("allocated_bytes.all.peak"), memory_stats_as_nested_dict() is not.
std::optional<Bytes> stat(const json& stats, const std::string& name) {
  const auto value = [](const json& j) -> std::optional<Bytes> {
    if (!j.is_number_integer() || j.get<std::int64_t>() < 0)
      fail_input("a counter of the JSON is not a number of bytes");
    return Bytes(j.get<std::int64_t>());
  };
  if (const auto flat = stats.find(name + ".all.peak"); flat != stats.end()) return value(*flat);
  if (const auto nested = stats.find(name); nested != stats.end() && nested->is_object())
    if (const auto all = nested->find("all"); all != nested->end() && all->is_object())
      if (const auto peak = all->find("peak"); peak != all->end()) return value(*peak);
  return std::nullopt;
}

Measurement from_stats(const json& stats, const std::string& path) {
  Measurement m;
  m.source = "torch.cuda.memory_stats() in " + path;
  m.peak.requested = stat(stats, "requested_bytes");
  m.peak.allocated = stat(stats, "allocated_bytes");
  m.peak.reserved = stat(stats, "reserved_bytes");
  if (!m.peak.requested && !m.peak.allocated && !m.peak.reserved)
    fail_input("the JSON is neither a memory snapshot nor torch.cuda.memory_stats()", path,
               "write it with json.dump(torch.cuda.memory_stats(), file)");
  return m;
}

}  // namespace

Measurement measurement_from_file(const std::string& path) {
  const std::string text = read_file(path);
  if (text.empty()) fail_input("the file is empty", path);
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (text[first] == '{' || text[first] == '[')) {
    // Depth is bounded before the parser recurses.
    int depth = 0, deepest = 0;
    for (char c : text) depth += (c == '{' || c == '[') - (c == '}' || c == ']'), deepest = std::max(deepest, depth);
    if (deepest > 1000) fail_input("the JSON is nested deeper than memplan reads", path);
    const json j = json::parse(text, nullptr, false);
    if (!j.is_object()) fail_input("the file is not JSON that memplan knows", path);
    if (j.contains("device_traces") || j.contains("segments"))
      return measurement_from_snapshot(snapshot_from_json(j), path);
    return from_stats(j, path);
  }
  if (static_cast<unsigned char>(text[0]) == 0x80) return measurement_from_snapshot(snapshot_from_pickle(text), path);
  fail_input("the file is neither a pickle nor JSON", path,
             "give a memory snapshot, a memory_stats() JSON or a figure such as 11.3GiB");
}

Measurement measurement_from_figure(Bytes bytes, const std::string& counter) {
  Measurement m;
  m.source = fmt::format("a figure of {} bytes", counter);
  *counter_of(m.peak, counter) = bytes;
  return m;
}

}  // namespace memplan
