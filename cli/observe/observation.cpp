#include "cli/observe/observation.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/terminal/style.h"
#include "estimators/base/text_file.h"
#include "estimators/facts/nccl.h"

namespace memplan::cli {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

Bytes bytes_at(const json& j, const char* key) { return Bytes(j.value(key, std::int64_t{0})); }

Place place_of(const json& j) {
  return {j.value("script", ""), j.value("code", ""), j.value("text", ""), j.value("op", "")};
}

std::vector<json> files_of(const std::string& folder, std::string_view prefix) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".json")) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<json> found;
  for (const fs::path& path : paths) {
    json j = json::parse(text_of_file(path.string(), ErrorKind::input), nullptr, false);
    if (!j.is_discarded()) found.push_back(std::move(j));
  }
  return found;
}

Observed observed_of(const json& process, const json& device) {
  Observed r;
  r.pid = process.value("pid", std::int64_t{0});
  r.ranked = process["rank"].is_number();
  r.rank = r.ranked ? process["rank"].get<std::int64_t>() : 0;
  r.world = process.value("world", std::int64_t{1});
  r.steps = process.value("steps", std::int64_t{0});
  r.own_steps = process.value("own_steps", std::int64_t{0});
  r.trains = process.value("trains", false);
  r.finished = process.value("complete", false);
  r.stopped = process.value("stopped", false);
  r.torch = process.value("torch", "");
  r.device = device.value("index", std::int64_t{0});
  r.requested = bytes_at(device, "requested_bytes");
  r.allocated = bytes_at(device, "allocated_bytes");
  r.reserved = bytes_at(device, "reserved_bytes");
  r.driver = bytes_at(device, "driver_bytes");
  r.nccl =
      nccl_bytes(static_cast<int>(std::clamp<std::int64_t>(process.value("communicators", std::int64_t{0}), 0, 1000)));
  r.retries = device.value("retries", std::int64_t{0});
  if (const auto peak = device.find("peak"); peak != device.end()) {
    r.peak_requested = bytes_at(*peak, "requested_bytes");
    r.phase = peak->value("phase", "");
    r.peak_at = place_of((*peak)["at"]);
    r.history_complete = peak->value("complete", true);
    r.checkpoints = peak->value("checkpoints", false);
    r.untrained = bytes_at(*peak, "untrained_bytes");
    for (const auto& [kind, n] : (*peak)["by_kind"].items()) r.by_kind.emplace_back(kind, Bytes(n.get<std::int64_t>()));
    std::stable_sort(r.by_kind.begin(), r.by_kind.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    for (const json& b : (*peak)["blocks"])
      r.blocks.push_back({bytes_at(b, "bytes"), b.value("count", std::int64_t{0}), b.value("kind", ""),
                          b.value("names", std::vector<std::string>()), b.value("owner", ""), place_of(b)});
  }
  return r;
}

void add_compiled(Observation& o, const json& process) {
  const auto found = process.find("compiled");
  if (found == process.end() || !found->is_object()) return;
  if (!o.compiled) o.compiled.emplace();
  o.compiled->graphs = std::max(o.compiled->graphs, found->value("graphs", std::int64_t{0}));
  o.compiled->padding_measured =
      std::max(o.compiled->padding_measured, found->value("padding_measured", std::int64_t{0}));
  if (!o.compiled->breaks.empty() || !o.compiled->eager.empty()) return;  // the ranks run the same program
  for (const json& f : found->value("eager", json::array()))
    o.compiled->eager.push_back({f.value("function", ""), f.value("reason", ""), f.value("count", std::int64_t{0})});
  for (const json& b : found->value("breaks", json::array()))
    o.compiled->breaks.emplace_back(b.value("reason", ""), b.value("count", std::int64_t{0}));
}

void refuse(const json& j) { fail_input(j.value("what", ""), {}, j.value("hint", "")); }

}  // namespace

void read_processes(const std::string& folder, Observation& o) {
  for (const json& refused : files_of(folder, "refused-")) refuse(refused);
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> sites;
  for (const json& process : files_of(folder, "process-")) {
    add_compiled(o, process);
    for (const json& device : process["devices"]) o.ranks.push_back(observed_of(process, device));
    const std::int64_t rank = process["rank"].is_number() ? process["rank"].get<std::int64_t>() : 0;
    for (const json& x : process["out_of_memory"])
      o.out_of_memory.push_back({rank, x.value("device", std::int64_t{0}), bytes_at(x, "wanted_bytes"),
                                 bytes_at(x, "allocated_bytes"), bytes_at(x, "reserved_bytes"), place_of(x)});
    if (process["exception"].is_object())
      o.exception =
          fmt::format("{}: {}", process["exception"].value("type", ""), process["exception"].value("text", ""));
    if (process["history_error"].is_string())
      o.notes.push_back(
          fmt::format("the record of allocations could not be read: {}", process["history_error"].get<std::string>()));
    for (const json& x : process.value("unknown", json::array())) {
      const std::string what = x.at(0).get<std::string>();
      auto it = std::find_if(o.unknown.begin(), o.unknown.end(), [&](const auto& u) { return u.first == what; });
      if (it == o.unknown.end()) it = o.unknown.insert(o.unknown.end(), {what, 0});
      it->second += x.at(1).get<std::int64_t>();
    }
    for (const json& x : process["reads"]) {
      const Place place = place_of(x);
      const auto [it, fresh] = sites.try_emplace({place.script, place.code, place.op}, o.reads.size());
      if (fresh) o.reads.push_back({0, 0, place});
      o.reads[it->second].count += x.value("count", std::int64_t{0});
      o.reads[it->second].bytes += x.value("bytes", std::int64_t{0});
    }
  }
  std::stable_sort(o.reads.begin(), o.reads.end(), [](const Read& a, const Read& b) { return a.count > b.count; });
  std::stable_sort(o.ranks.begin(), o.ranks.end(), [](const Observed& a, const Observed& b) {
    return std::tie(a.rank, a.device) < std::tie(b.rank, b.device);
  });
  if (!o.ranks.empty()) return;
  for (const json& missing : files_of(folder, "missing-"))
    fail_input("PyTorch is not installed for the script's Python", missing.value("executable", ""),
               "pip install torch, the CUDA build");
  fail_input("the script ended without having used a GPU", fmt::format("{}", fmt::join(o.command, " ")),
             "it must move its model to 'cuda'; Python's -I, -S and -E keep memplan out");
}

void judge_observation(Observation& o) {
  const Bytes usable = o.choice.device.total;
  const auto worse = [](Verdict a, Verdict b) {
    const auto rank = [](Verdict v) {
      return v == Verdict::no_fit ? 3 : v == Verdict::unknown ? 2 : v == Verdict::tight ? 1 : 0;
    };
    return rank(a) >= rank(b) ? a : b;
  };
  const auto note = [&o](std::string text) {
    if (std::find(o.notes.begin(), o.notes.end(), text) == o.notes.end()) o.notes.push_back(std::move(text));
  };
  o.verdict = Verdict::fits;
  const bool failed = std::any_of(o.exit_codes.begin(), o.exit_codes.end(), [](int code) { return code != 0; });
  for (Observed& r : o.ranks) {
    r.process = r.driver + r.nccl + o.context;
    o.peak = std::max(o.peak, r.process);
    r.verdict = r.process > usable                               ? Verdict::no_fit
                : r.process + o.margin > usable || r.retries > 0 ? Verdict::tight
                                                                 : Verdict::fits;
    for (const OutOfMemory& x : o.out_of_memory)
      if (x.rank == r.rank && x.device == r.device)
        r.verdict = failed ? Verdict::no_fit : worse(r.verdict, Verdict::tight);
    if (failed && o.out_of_memory.empty())
      r.verdict = worse(r.verdict, Verdict::unknown);  // nobody knows what would have come
    // Optimizers make their state in the first step, so only the second one has all of it from its beginning.
    if (r.trains && r.own_steps < 2 && r.verdict != Verdict::no_fit) {
      r.verdict = Verdict::unknown;
      note(
          fmt::format("the run ended after {} of an optimizer. Its state exists from the end of the first step on, so "
                      "the second step needs more: let it make 2 or more (--stop-after 2 ends it there)",
                      r.own_steps == 0 ? "no step" : "one step"));
    }
    o.verdict = worse(r.verdict, o.verdict);
  }
  const bool empty = std::any_of(o.unknown.begin(), o.unknown.end(),
                                 [](const auto& u) { return u.first.starts_with("size that depends on values"); });
  if (!empty) return;
  note("results whose size depends on values were empty, so the figures are a lower bound");
  if (o.verdict == Verdict::fits || o.verdict == Verdict::tight) o.verdict = Verdict::unknown;
}

Compiled::Run run_of(const Observation& o, std::string caches) {
  const Observed& r = *std::max_element(o.ranks.begin(), o.ranks.end(),
                                        [](const Observed& a, const Observed& b) { return a.process < b.process; });
  return {std::move(caches), r.requested, r.allocated, r.reserved, r.process};
}

namespace {

nlohmann::ordered_json compiled_json(const Compiled& c) {
  nlohmann::ordered_json j = {{"graphs", c.graphs}, {"padding_measured", c.padding_measured}};
  j["breaks"] = nlohmann::ordered_json::array();
  for (const auto& [reason, count] : c.breaks) j["breaks"].push_back({{"reason", clean(reason)}, {"count", count}});
  j["eager"] = nlohmann::ordered_json::array();
  for (const Compiled::Eager& f : c.eager)
    j["eager"].push_back({{"function", clean(f.function)}, {"reason", clean(f.reason)}, {"count", f.count}});
  j["runs"] = nlohmann::ordered_json::array();
  for (const Compiled::Run& r : c.runs)
    j["runs"].push_back({{"caches", r.caches},
                         {"requested_bytes", r.requested.count},
                         {"allocated_bytes", r.allocated.count},
                         {"reserved_bytes", r.reserved.count},
                         {"process_bytes", r.process.count}});
  return j;
}

void add_place(nlohmann::ordered_json& j, const Place& p) {
  if (!p.script.empty()) j["script"] = clean(p.script);
  if (!p.code.empty()) j["code"] = clean(p.code);
  if (!p.text.empty()) j["text"] = clean(p.text);
  if (!p.op.empty()) j["op"] = clean(p.op);
}

nlohmann::ordered_json rank_json(const Observed& r) {
  nlohmann::ordered_json j = {{"rank", r.rank},
                              {"world", r.world},
                              {"device", r.device},
                              {"steps", r.steps},
                              {"finished", r.finished},
                              {"verdict", name_of(r.verdict)},
                              {"requested_bytes", r.requested.count},
                              {"allocated_bytes", r.allocated.count},
                              {"reserved_bytes", r.reserved.count},
                              {"driver_bytes", r.driver.count},
                              {"nccl_bytes", r.nccl.count},
                              {"process_bytes", r.process.count},
                              {"retries", r.retries}};
  nlohmann::ordered_json peak = {
      {"requested_bytes", r.peak_requested.count}, {"phase", r.phase}, {"history_complete", r.history_complete}};
  peak["at"] = nlohmann::ordered_json::object();
  add_place(peak["at"], r.peak_at);
  peak["by_kind"] = nlohmann::ordered_json::object();
  for (const auto& [kind, n] : r.by_kind) peak["by_kind"][kind] = n.count;
  peak["blocks"] = nlohmann::ordered_json::array();
  for (const BlockRow& b : r.blocks) {
    nlohmann::ordered_json row = {{"bytes", b.bytes.count}, {"count", b.count}, {"kind", b.kind}};
    if (!b.names.empty()) {
      row["names"] = nlohmann::ordered_json::array();
      for (const std::string& name : b.names) row["names"].push_back(clean(name));
    }
    if (!b.owner.empty()) row["owner"] = clean(b.owner);
    add_place(row, b.place);
    peak["blocks"].push_back(std::move(row));
  }
  j["peak"] = std::move(peak);
  return j;
}

}  // namespace

nlohmann::ordered_json observation_json(const Observation& o) {
  nlohmann::ordered_json j;
  j["schema_version"] = observation_schema_version;
  j["kind"] = "observation";
  j["command"] = nlohmann::ordered_json::array();
  for (const std::string& word : o.command) j["command"].push_back(clean(word));
  j["device"] = {
      {"key", o.choice.device.key}, {"name", o.choice.device.name}, {"usable_bytes", o.choice.device.total.count},
      {"given", o.device_given},    {"limited", o.limited},         {"emulated", true}};
  j["context_bytes"] = o.context.count;
  j["margin_bytes"] = o.margin.count;
  j["torch"] = o.ranks.front().torch;
  j["verdict"] = name_of(o.verdict);
  j["peak_bytes"] = o.peak.count;
  j["ran_out_at_bytes"] = o.ran_out ? nlohmann::ordered_json(o.ran_out->count) : nlohmann::ordered_json();
  j["ranks"] = nlohmann::ordered_json::array();
  for (const Observed& r : o.ranks) j["ranks"].push_back(rank_json(r));
  j["out_of_memory"] = nlohmann::ordered_json::array();
  for (const OutOfMemory& x : o.out_of_memory) {
    nlohmann::ordered_json row = {{"rank", x.rank},
                                  {"device", x.device},
                                  {"wanted_bytes", x.wanted.count},
                                  {"allocated_bytes", x.allocated.count},
                                  {"reserved_bytes", x.reserved.count}};
    add_place(row, x.place);
    j["out_of_memory"].push_back(std::move(row));
  }
  j["values_read"] = nlohmann::ordered_json::array();
  for (const Read& r : o.reads) {
    nlohmann::ordered_json row = {{"count", r.count}, {"bytes", r.bytes}};
    add_place(row, r.place);
    j["values_read"].push_back(std::move(row));
  }
  j["not_known"] = nlohmann::ordered_json::array();
  for (const auto& [what, count] : o.unknown) j["not_known"].push_back({{"what", clean(what)}, {"count", count}});
  j["compiled"] = o.compiled ? compiled_json(*o.compiled) : nlohmann::ordered_json();
  j["script_exit_codes"] = o.exit_codes;
  j["exception"] = o.exception.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(clean(o.exception));
  j["notes"] = o.notes;
  j["advice"] = o.advice;
  j["exit_code"] = o.exit_code;
  return j;
}

}  // namespace memplan::cli
