// One self-contained page: the template of cli/report/html with the document in it. The page draws everything itself.
#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cli/report/accuracy.h"
#include "cli/report/document.h"
#include "cli/report/words.h"

namespace memplan::embedded {
std::string_view report_page();
}

namespace memplan::cli {

namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

/// JSON in which no tag can begin or end: '<' only ever stands inside strings, where it may be written as an escape.
std::string as_data(const Json& document) {
  const std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size() + text.size() / 64);
  for (const char c : text) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

constexpr std::size_t most_rows = 100000;  // of a table, as of a timeline's allocations

/// The tensors of a report without a timeline in the columns that the page reads; a tenth of the size of the rows.
Json columns_of(const Json& tensors) {
  static constexpr std::array<std::pair<const char*, const char*>, 5> texts{
      {{"name", "name"}, {"op", "producer"}, {"module", "module"}, {"reason", "reason"}, {"dtype", "dtype"}}};
  std::unordered_map<std::string, std::size_t> ids;
  Json strings = Json::array(), kinds = Json::array();
  const auto id = [&](const std::string& text) {
    const auto [entry, added] = ids.emplace(text, strings.size());
    if (added) strings.push_back(text);
    return entry->second;
  };
  std::unordered_map<std::string, std::size_t> kind_ids;
  Json out{{"name", Json::array()},     {"op", Json::array()},    {"module", Json::array()},
           {"reason", Json::array()},   {"dtype", Json::array()}, {"shape", Json::array()},
           {"category", Json::array()}, {"bytes", Json::array()}, {"block_bytes", Json::array()}};
  // The largest ones; the order stays.
  std::vector<std::int64_t> sizes;
  for (const Json& t : tensors) sizes.push_back(t.value("bytes", std::int64_t{0}));
  std::int64_t least = 0;
  std::size_t ties = most_rows;  // how many of exactly `least` bytes have room
  if (sizes.size() > most_rows) {
    std::nth_element(sizes.begin(), sizes.begin() + most_rows - 1, sizes.end(), std::greater<>());
    least = sizes[most_rows - 1];
    ties = most_rows - static_cast<std::size_t>(
                           std::count_if(sizes.begin(), sizes.end(), [&](std::int64_t b) { return b > least; }));
  }
  for (const Json& t : tensors) {
    const std::int64_t bytes = t.value("bytes", std::int64_t{0});
    if (bytes < least || (bytes == least && ties == 0)) continue;
    if (bytes == least) --ties;
    for (const auto& [column, member] : texts)
      out[column].push_back(
          id(t.contains(member) && t[member].is_string() ? t[member].get<std::string>() : std::string()));
    std::string shape;
    if (t.contains("shape") && t["shape"].is_array())
      for (const Json& n : t["shape"]) shape += (shape.empty() ? "" : "x") + std::to_string(n.get<std::int64_t>());
    out["shape"].push_back(id(shape));
    const std::string kind = t.value("category", std::string("activations"));
    const auto [entry, added] = kind_ids.emplace(kind, kinds.size());
    if (added) kinds.push_back(kind);
    out["category"].push_back(entry->second);
    out["bytes"].push_back(bytes);
    out["block_bytes"].push_back(t.value("block_bytes", std::int64_t{0}));
  }
  out["of"] = tensors.size();
  out["strings"] = strings;
  out["categories"] = kinds;
  return out;
}

struct Heading {
  std::string title, sentence;
};

Heading heading_of(const Json& document) {
  const Json& s = document.at("summary");
  if (kind_of(document) == check_document)
    return {"Gate: " + text_of(s, "status"),
            "Targets: " + std::to_string(s.at("targets").get<std::int64_t>()) + ", failing: " +
                std::to_string(s.at("failed").get<std::int64_t>() + s.at("errors").get<std::int64_t>()) + "."};
  if (kind_of(document) == diff_document)
    return {file_name(text_of(document.at("base"), "model")) + " against " +
                file_name(text_of(document.at("head"), "model")),
            "The peak goes from " + human(s.at("base_bytes")) + " to " + human(s.at("head_bytes")) + "."};
  std::string sentence = "The peak of the process is " + human(s.at("peak_bytes"));
  if (s.at("limit_bytes").is_number()) sentence += " of " + human(s.at("limit_bytes"));
  return {file_name(text_of(document.at("input"), "path")) +
              (s.at("verdict").is_string() ? ": " + text_of(s, "verdict") : ""),
          sentence + "."};
}

}  // namespace

std::string render_html(const Json& document, const View&) {
  Json shown = document;
  if (kind_of(document) == report_document) {
    // With a timeline the tensors at the peak are among its allocations.
    if (!shown.contains("timeline"))
      shown["tensor_columns"] = columns_of(shown.value("tensors_at_peak", Json::array()));
    shown.erase("tensors_at_peak");
    // Nor does the page draw the end of the run or driver calls; perfetto and snapshot are made from the document
    // itself.
    if (shown.contains("timeline"))
      for (const char* part : {"arena_at_end", "driver"}) shown["timeline"].erase(part);
    shown["accuracy"] = accuracy_sentences();
  } else if (kind_of(document) == check_document) {
    // A gate's page shows what its rules found; each report has a page of its own.
    for (Json& t : shown.at("targets"))
      if (!t.at("report").is_null())
        t["report"] = {{"summary", t["report"].at("summary")}, {"device", t["report"].at("device")}};
  }
  const Heading heading = heading_of(document);
  const std::pair<std::string_view, std::string> fields[] = {{"@TITLE@", escaped(heading.title + " – memplan")},
                                                             {"@SUMMARY@", escaped(heading.sentence)},
                                                             {"@DATA@", as_data(shown)}};
  // One pass from left to right, so that what is filled in is never looked at.
  const std::string_view page = embedded::report_page();
  std::string out;
  out.reserve(page.size() + fields[2].second.size());
  for (std::size_t at = 0; at < page.size();) {
    std::size_t next = page.size();
    const std::pair<std::string_view, std::string>* found = nullptr;
    for (const auto& field : fields)
      if (const std::size_t place = page.find(field.first, at); place < next) {
        next = place;
        found = &field;
      }
    out.append(page, at, next - at);
    if (!found) break;
    out += found->second;
    at = next + found->first.size();
  }
  return out;
}

}  // namespace memplan::cli
