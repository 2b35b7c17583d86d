#include "cli/gate/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/report/words.h"

namespace memplan::cli {

namespace {

struct Side {
  std::int64_t bytes = 0, count = 0;
  Json shape;  ///< of a tensor
};
struct Pair {
  Side base, head;
};
using Pairs = std::map<std::string, Pair>;

DiffState state_of(const Pair& p) {
  if (p.base.count == 0) return DiffState::fresh;
  if (p.head.count == 0) return DiffState::gone;
  if (p.base.bytes == p.head.bytes) return DiffState::same;
  if (p.base.bytes == 0) return DiffState::fresh;
  return p.head.bytes > p.base.bytes ? DiffState::grew : DiffState::shrank;
}

Json row(const Pair& p) {
  return {{"base_bytes", p.base.bytes},
          {"head_bytes", p.head.bytes},
          {"delta_bytes", p.head.bytes - p.base.bytes},
          {"state", name_of(state_of(p))}};
}

/// Largest change first; equal ones by name.
std::vector<Pairs::const_iterator> by_change(const Pairs& pairs) {
  std::vector<Pairs::const_iterator> order;
  for (auto it = pairs.begin(); it != pairs.end(); ++it) order.push_back(it);
  const auto change = [](const Pairs::const_iterator& it) {
    return std::abs(it->second.head.bytes - it->second.base.bytes);
  };
  std::stable_sort(order.begin(), order.end(), [&](const auto& x, const auto& y) { return change(x) > change(y); });
  return order;
}

/// Rows of a list of {member, bytes}; only those that changed, unless `all`.
Json compare(const Json& base, const Json& head, const char* list, const char* member, bool all = false) {
  Pairs pairs;
  const auto collect = [&](const Json& document, Side Pair::*side) {
    for (const Json& entry : document.at(list)) {
      Side& s = pairs[text_of(entry, member)].*side;
      s.bytes += entry.at("bytes").get<std::int64_t>();
      ++s.count;
    }
  };
  collect(base, &Pair::base);
  collect(head, &Pair::head);
  Json rows = Json::array();
  for (const auto& it : by_change(pairs)) {
    if (!all && it->second.base.bytes == it->second.head.bytes) continue;
    Json r{{member, it->first}};
    r.update(row(it->second));
    rows.push_back(std::move(r));
  }
  return rows;
}

/// Tensors are told apart by module, name and kind; several of one key (a weight's gradient and its copy) count
/// together.
Json compare_tensors(const Json& base, const Json& head, std::int64_t& unchanged) {
  Pairs pairs;
  const auto collect = [&](const Json& document, Side Pair::*side) {
    for (const Json& t : document.at("tensors_at_peak")) {
      Side& s = pairs[fmt::format("{}\n{}\n{}", owner_of(t), text_of(t, "name"), text_of(t, "category"))].*side;
      s.bytes += t.at("bytes").get<std::int64_t>();
      if (s.count++ == 0) s.shape = t.at("shape");
    }
  };
  collect(base, &Pair::base);
  collect(head, &Pair::head);
  Json rows = Json::array();
  for (const auto& it : by_change(pairs)) {
    const Pair& p = it->second;
    if (p.base.bytes == p.head.bytes) {
      ++unchanged;
      continue;
    }
    const std::string& key = it->first;
    const std::size_t first = key.find('\n'), second = key.find('\n', first + 1);
    Json r{{"module", key.substr(0, first)},
           {"name", key.substr(first + 1, second - first - 1)},
           {"category", key.substr(second + 1)},
           {"base_shape", p.base.count ? p.base.shape : Json(nullptr)},
           {"head_shape", p.head.count ? p.head.shape : Json(nullptr)}};
    r.update(row(p));
    rows.push_back(std::move(r));
  }
  return rows;
}

Json side_of(const Json& report) {
  const Json& s = report.at("summary");
  return {{"model", report.at("input").at("path")},    {"graph_hash", report.at("input").value("graph_hash", "")},
          {"flags", report.at("command").at("flags")}, {"tool_version", report.at("tool").at("version")},
          {"device", report.at("device").at("key")},   {"verdict", s.at("verdict")},
          {"peak_bytes", s.at("peak_bytes")},          {"limit_bytes", s.at("limit_bytes")}};
}

}  // namespace

Json setup_changes(const Json& base, const Json& head) {
  const auto flat = [](const Json& report) {
    std::map<std::string, std::string> values;
    const auto put = [&](const std::string& name, const Json& value) {
      values[name] = value.is_string() ? value.get<std::string>() : value.dump();
    };
    for (const auto& [name, value] : report.at("setup").items()) {
      if (name == "torch")
        put(name, value.at("version"));  // why it is that one is no change
      else if (name == "dims")
        for (const Json& d : value) put(text_of(d, "name"), d.at("size"));
      else if (value.is_object())
        for (const auto& [inner, v] : value.items()) put(name + " " + inner, v);
      else
        put(name, value);
    }
    if (!report.at("setup").contains("torch")) put("torch", "2.11");  // all that earlier reports knew
    put("device", report.at("device").at("key"));
    put("context", report.at("device").at("context_bytes"));
    return values;
  };
  const auto b = flat(base), h = flat(head);
  Json changes = Json::array();
  for (const auto& [name, value] : b) {
    const auto other = h.find(name);
    if (other == h.end() || other->second != value)
      changes.push_back(
          {{"name", name}, {"base", value}, {"head", other == h.end() ? Json(nullptr) : Json(other->second)}});
  }
  for (const auto& [name, value] : h)
    if (!b.contains(name)) changes.push_back({{"name", name}, {"base", nullptr}, {"head", value}});
  return changes;
}

Json diff_of(const Json& base, const Json& head) {
  Pair peak;
  peak.base.bytes = base.at("summary").at("peak_bytes"), peak.head.bytes = head.at("summary").at("peak_bytes");
  peak.base.count = peak.head.count = 1;
  Json j;
  j["schema_version"] = report_schema_version;
  j["kind"] = "diff";
  j["tool"] = head.at("tool");
  j["base"] = side_of(base);
  j["head"] = side_of(head);
  Json summary = row(peak);
  // Of nothing there is no share.
  summary["change_percent"] =
      peak.base.bytes == 0
          ? Json(nullptr)
          : Json(static_cast<double>(peak.head.bytes - peak.base.bytes) * 100.0 / static_cast<double>(peak.base.bytes));
  const std::string was = base.at("input").value("graph_hash", ""), is = head.at("input").value("graph_hash", "");
  summary["model"] = was.empty() || is.empty() ? "not known" : was == is ? "same graph" : "another graph";
  j["summary"] = summary;
  j["setup"] = setup_changes(base, head);
  j["parts"] = compare(base, head, "breakdown", "category", true);
  Json counters = Json::array();
  for (const char* name : {"requested", "allocated", "reserved", "process"}) {
    Pair p;
    const std::string member = std::string(name) + "_bytes";
    p.base.bytes = base.at("counters").at(member), p.head.bytes = head.at("counters").at(member);
    p.base.count = p.head.count = 1;
    Json r{{"counter", name}};
    r.update(row(p));
    counters.push_back(r);
  }
  j["counters"] = counters;
  j["modules"] = compare(base, head, "at_peak_by_module", "module");
  j["ops"] = compare(base, head, "at_peak_by_op", "op");
  j["dtypes"] = compare(base, head, "at_peak_by_dtype", "dtype");
  std::int64_t unchanged = 0;
  j["tensors"] = compare_tensors(base, head, unchanged);
  j["tensors_unchanged"] = unchanged;
  return j;
}

const Json& report_in(const Json& document, const std::string& target, const std::string& path) {
  switch (kind_of(document)) {
    case report_document:
      return document;
    case diff_document:
      fail(ErrorKind::usage, "this is a comparison, not a report", path,
           "give a report of memplan MODEL --format json");
    case check_document:
      break;
  }
  const Json& targets = document.at("targets");
  std::string names;
  for (const Json& t : targets) {
    const std::string name = text_of(t, "name");
    names += (names.empty() ? "" : ", ") + name;
    if ((name == target || (target.empty() && targets.size() == 1)) && !t.at("report").is_null()) return t.at("report");
  }
  if (target.empty())
    fail(ErrorKind::usage, fmt::format("the file has the reports of several targets: {}", names), path,
         fmt::format("name one, as in {}#NAME", path));
  fail(ErrorKind::usage, fmt::format("the file has no report of the target '{}', only of {}", target, names), path,
       "name one of these");
}

}  // namespace memplan::cli
