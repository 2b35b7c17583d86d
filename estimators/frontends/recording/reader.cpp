#include "estimators/frontends/recording/reader.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "estimators/base/error.h"
#include "estimators/frontends/recording/calls_reader.h"
#include "estimators/frontends/recording/checked_json.h"
#include "estimators/frontends/recording/setups.h"
#include "estimators/frontends/torch_export/json_text.h"

namespace memplan::recording {

namespace {

constexpr std::int64_t most_allocations = 4'000'000;
constexpr std::int32_t most_streams = 1024;
constexpr std::int64_t most_steps = 64;

StoredValue read_value(const json& row, const Reader& r) {
  StoredValue v;
  v.name = row.at(0).get<std::string>();
  v.dtype = r.dtype(row.at(1));
  v.sizes = r.sizes(row.at(2), "a size of a tensor");
  r.check(v.sizes.size() <= most_dimensions, "a tensor has more than 64 dimensions");
  return v;
}

std::vector<StoredValue> read_weights(const json& rows, const Reader& r) {
  std::vector<StoredValue> out;
  for (const json& row : rows) {
    StoredValue v = read_value(row, r);
    v.requires_grad = r.number(row.at(3), 0, 1, "requires_grad") == 1;
    v.same_as = row.at(4).get<std::string>();
    out.push_back(std::move(v));
  }
  return out;
}

void read_inputs(const json& root, Recording& out, const Reader& r) {
  for (const json& row : root.at("inputs")) {
    StoredValue v = read_value(row, r);
    v.is_batch.assign(v.sizes.size(), false);
    out.inputs.push_back(std::move(v));
  }
  for (const json& row : root.at("open")) {
    r.check(!out.inputs.empty(), "an open dimension belongs to no input");
    StoredValue& input = out.inputs[static_cast<std::size_t>(
        r.number(row.at(0), 0, static_cast<std::int64_t>(out.inputs.size()) - 1, "an open dimension's input"))];
    r.check(!input.sizes.empty(), "an open dimension belongs to a scalar");
    input.is_batch[static_cast<std::size_t>(
        r.number(row.at(1), 0, static_cast<std::int64_t>(input.sizes.size()) - 1, "an open dimension"))] = true;
  }
}

std::vector<StoredOp> read_ops(const json& rows, const Run& run, std::size_t events, const Reader& r) {
  static constexpr std::array<std::string_view, 7> phases = {"setup",    "data", "forward",  "loss",
                                                             "backward", "clip", "optimizer"};
  const auto strings = static_cast<std::int64_t>(run.strings.size());
  std::vector<StoredOp> out;
  out.reserve(rows.size());
  std::int64_t at = 0;
  for (const json& row : rows) {
    StoredOp op;
    op.name = static_cast<std::int32_t>(r.number(row.at(0), 0, strings - 1, "the name of an op"));
    op.scope =
        static_cast<std::int32_t>(r.number(row.at(1), -1, static_cast<std::int64_t>(run.scopes.size()) - 1, "a scope"));
    const std::string& phase = run.strings[static_cast<std::size_t>(r.number(row.at(2), 0, strings - 1, "a phase"))];
    const auto known = std::find(phases.begin(), phases.end(), phase);
    if (known == phases.end()) r.bad(fmt::format("a step has no phase '{}'", phase));
    op.phase = static_cast<Phase>(known - phases.begin());
    op.step = static_cast<std::int32_t>(r.number(row.at(3), 0, most_steps, "a step"));
    at = r.number(row.at(4), at, static_cast<std::int64_t>(events), "the first event of an op");
    op.first_event = static_cast<std::int32_t>(at);
    out.push_back(op);
  }
  return out;
}

/// Every allocation is made once, in the order of the numbers, and freed once at most, later.
void check_events(const Program& p, std::size_t count, const Reader& r) {
  std::vector<bool> freed(count, false);
  std::size_t born = 0;
  for (const std::int32_t e : p.events) {
    r.check(e != 0, "an event belongs to no allocation");
    if (e > 0) {
      r.check(static_cast<std::size_t>(e) == born + 1 && born < count, "allocations are not made one after the other");
      ++born;
      continue;
    }
    const std::size_t at = static_cast<std::size_t>(-static_cast<std::int64_t>(e)) - 1;
    r.check(at < born && !freed[at], "something is freed that is not there");
    freed[at] = true;
  }
  r.check(born == count, "an allocation is never made");
}

/// None where an older memplan.record left them out.
std::vector<std::vector<std::array<std::int64_t, 3>>> read_peaks(const json& program, std::size_t batches,
                                                                 const Reader& r) {
  std::vector<std::vector<std::array<std::int64_t, 3>>> out;
  const auto found = program.find("peaks");
  if (found == program.end()) return out;
  r.check(found->is_array() && found->size() == batches, "peaks are missing");
  for (const json& steps : *found) {
    r.check(steps.is_array() && static_cast<std::int64_t>(steps.size()) <= most_steps + 1, "peaks of too many steps");
    out.emplace_back();
    for (const json& step : steps) {
      const std::vector<std::int64_t> three = r.sizes(step, "a peak");
      r.check(three.size() == 3, "a peak is not three numbers");
      out.back().push_back({three[0], three[1], three[2]});
    }
  }
  return out;
}

Program read_program(const json& j, const Run& run, const Recording& recording, const Reader& r) {
  Program p;
  const json& batches = j.at("batches");
  r.check(batches.is_array() && !batches.empty(), "a program has no size");
  for (const json& b : batches) {
    p.batches.push_back(r.number(b,
                                 recording.batches.empty() ? 0
                                 : p.batches.empty()       ? 1
                                                           : p.batches.back() + 1,
                                 std::int64_t{1} << 40, "a batch"));
    p.sizes.push_back(r.sizes(j.at("sizes").at(p.sizes.size()), "the size of an allocation"));
    r.check(p.sizes.back().size() == p.sizes.front().size(), "sizes of one program differ in number");
  }
  p.peaks = read_peaks(j, p.batches.size(), r);
  const auto count = static_cast<std::int64_t>(p.sizes.front().size());
  r.check(count <= most_allocations, "more than four million allocations");
  p.streams = r.indices(j.at("streams"), 0, most_streams, "a stream");
  r.check(p.streams.empty() || static_cast<std::int64_t>(p.streams.size()) == count, "streams are missing");
  for (const std::int32_t c : r.indices(j.at("categories"), 0, category_count - 1, "a category"))
    p.categories.push_back(static_cast<Category>(c));
  p.labels = r.indices(j.at("labels"), -1, static_cast<std::int64_t>(run.strings.size()) - 1, "a label");
  r.check(
      static_cast<std::int64_t>(p.categories.size()) == count && static_cast<std::int64_t>(p.labels.size()) == count,
      "categories or labels are missing");
  p.events = r.indices(j.at("events"), -count, count, "an event");
  check_events(p, static_cast<std::size_t>(count), r);
  p.ops = read_ops(j.at("ops"), run, p.events.size(), r);
  p.step_begins = r.indices(j.at("steps"), 0, static_cast<std::int64_t>(p.events.size()), "the begin of a step");
  r.check(!p.step_begins.empty() && static_cast<std::int64_t>(p.step_begins.size()) <= most_steps &&
              std::is_sorted(p.step_begins.begin(), p.step_begins.end()),
          "the steps are not in order");
  return p;
}

constexpr std::size_t most_others = 4096;

std::vector<OtherPeak> read_others(const json& row, const Reader& r) {
  std::vector<OtherPeak> out;
  const auto found = row.find("others");
  if (found == row.end()) return out;
  r.check(found->is_array() && found->size() <= most_others, "other runs are no list, or too many");
  for (const json& j : *found) {
    OtherPeak other;
    other.how = j.at("how").get<std::string>();
    if (const json& batch = j.at("batch"); !batch.is_null())
      other.batch = r.number(batch, 1, std::int64_t{1} << 40, "a batch");
    const std::vector<std::int64_t> three = r.sizes(j.at("peak"), "a peak");
    r.check(three.size() == other.bytes.size(), "a peak is not three numbers");
    std::copy(three.begin(), three.end(), other.bytes.begin());
    out.push_back(std::move(other));
  }
  return out;
}

void read_scopes(const json& rows, Run& run, const Reader& r) {
  const auto strings = static_cast<std::int64_t>(run.strings.size());
  for (const json& row : rows) {
    Scope s;
    s.path = run.strings[static_cast<std::size_t>(r.number(row.at(0), 0, strings - 1, "a module's path"))];
    s.module_class = run.strings[static_cast<std::size_t>(r.number(row.at(1), 0, strings - 1, "a module's class"))];
    s.parent = static_cast<std::int32_t>(
        r.number(row.at(2), -1, static_cast<std::int64_t>(run.scopes.size()) - 1, "a module's parent"));
    s.call = static_cast<std::int32_t>(r.number(row.at(3), 0, INT32_MAX, "a module's call"));
    run.scopes.push_back(std::move(s));
  }
}

json parse(const torch_export::Archive& archive, std::string_view name, const std::string& path) {
  const auto* member = archive.find(name);
  if (!member)
    fail_input(fmt::format("the recording lacks its member '{}'", name), path, "copy or record the file again");
  std::string text = archive.read(*member, max_member_bytes);
  torch_export::tame_json(text, 16, fmt::format("{}: {}", path, name));
  return json::parse(text);
}

Run read_run(const json& row, const torch_export::Archive& archive, const Recording& recording,
             const std::string& path) {
  const std::string member = row.at("events").get<std::string>();
  const Reader r(path + ": " + member);
  Run run;
  run.setup = read_setup(row.at("setup"), path);
  run.causes = row.at("causes").get<bool>();
  run.why = row.value("why", std::string());
  run.compiled_with = row.value("compiled_with", std::string());
  run.others = read_others(row, r);
  for (const json& u : row.at("unknown")) run.unknown.push_back(u.at(0).get<std::string>());
  const json body = parse(archive, member, path);
  run.strings = body.at("strings").get<std::vector<std::string>>();
  read_scopes(body.at("scopes"), run, r);
  std::set<std::int64_t> seen;
  for (const json& j : body.at("programs")) {
    run.programs.push_back(read_program(j, run, recording, r));
    for (const std::int64_t b : run.programs.back().batches) r.check(seen.insert(b).second, "a batch is there twice");
  }
  r.check(!run.programs.empty(), "a setup has no program");
  if (const json& calls = row.at("calls"); !calls.is_null()) {
    const std::string name = calls.get<std::string>();
    run.calls = read_calls(parse(archive, name, path), recording.inputs.size(), path + ": " + name);
  }
  return run;
}

Recording convert(const json& root, const torch_export::Archive& archive, const std::string& path) {
  const Reader r(path);
  Recording out;
  r.check(root.is_object() && root.value("format", "") == "memplan recording", "its index is not one of a recording");
  const std::int64_t version = r.number(root.at("version"), 0, INT32_MAX, "the version");
  if (version != format_version)
    fail_input(
        fmt::format("the recording has version {} of its format; this memplan knows {}", version, format_version), path,
        "use a newer memplan, or record the module again with this one's memplan.record");
  if (const auto script = root.find("script"); script != root.end())
    out.script = fmt::format("{}", fmt::join(script->get<std::vector<std::string>>(), " "));
  if (const auto source = root.find("source"); source != root.end()) {
    out.source = source->at("argument").get<std::string>();
    out.source_flags = source->at("flags").get<std::vector<std::string>>();
  }
  out.torch = root.at("torch").get<std::string>();
  out.gpu = root.at("gpu").get<std::string>();
  out.evidence = root.at("evidence").get<std::string>();
  out.module_class = root.at("model").at("class").get<std::string>();
  out.parameters = read_weights(root.at("model").at("parameters"), r);
  out.buffers = read_weights(root.at("model").at("buffers"), r);
  read_inputs(root, out, r);
  for (const json& b : root.at("batches")) out.batches.push_back(r.number(b, 1, std::int64_t{1} << 40, "a batch"));
  const json& runs = root.at("runs");
  r.check(runs.is_array() && !runs.empty() && static_cast<std::int64_t>(runs.size()) <= max_runs,
          "it has no setup, or too many");
  for (const json& row : runs) out.runs.push_back(read_run(row, archive, out, path));
  return out;
}

Graph dims_graph(const Recording& recording) {
  Graph g;
  g.name = "main";
  for (const StoredValue& input : recording.inputs) {
    GraphValue v;
    v.name = input.name;
    v.dtype = input.dtype;
    v.shape.emplace();
    for (std::size_t i = 0; i < input.sizes.size(); ++i)
      v.shape->push_back(input.is_batch[i] ? Dim{-1, "batch"} : Dim{input.sizes[i], ""});
    g.inputs.push_back(static_cast<GraphValueId>(g.values.size()));
    g.values.push_back(std::move(v));
  }
  // A script may make its batch on the device.
  const bool said = std::any_of(recording.inputs.begin(), recording.inputs.end(), [](const StoredValue& input) {
    return std::find(input.is_batch.begin(), input.is_batch.end(), true) != input.is_batch.end();
  });
  if (!recording.batches.empty() && !said) {
    GraphValue v;
    v.name = "batch";
    v.shape.emplace(1, Dim{-1, "batch"});
    g.inputs.push_back(static_cast<GraphValueId>(g.values.size()));
    g.values.push_back(std::move(v));
  }
  if (!recording.batches.empty()) g.metadata["memplan.batch"] = std::to_string(recording.batches.front());
  return g;
}

}  // namespace

Model read_recording(const torch_export::Archive& archive, const std::string& path) {
  try {
    auto recording = std::make_shared<Recording>(convert(parse(archive, index_member, path), archive, path));
    Model model;
    model.graphs.push_back(dims_graph(*recording));
    const bool script = !recording->script.empty();
    model.format = fmt::format("recording of {}, PyTorch {}", script ? recording->script : recording->module_class,
                               recording->torch);
    model.producer = script ? "memplan observe" : "memplan.record";
    model.torch = recording->torch;
    model.path = path;
    model.recorded = std::move(recording);
    return model;
  } catch (const json::exception& e) {
    fail_input(fmt::format("the recording is damaged or of an unknown form: {}", e.what()), path,
               "record the module again with memplan.record");
  }
}

}  // namespace memplan::recording
