#include "cli/report/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/flags/strategy_values.h"
#include "cli/report/certainty.h"
#include "cli/report/report.h"
#include "cli/report/timeline.h"
#include "estimators/runtime/runtime.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/setup/names.h"
#include "estimators/setup/runtimes.h"
#include "estimators/setup/strategies.h"

namespace memplan::cli {

namespace {

Json counters(const Counters& c) {
  return {{"requested_bytes", c.requested.count},
          {"allocated_bytes", c.allocated.count},
          {"reserved_bytes", c.reserved.count},
          {"process_bytes", c.process.count}};
}

/// An array of what `one` makes of each.
template <class T, class F>
Json list_of(const std::vector<T>& all, F one) {
  Json list = Json::array();
  for (const T& x : all) list.push_back(one(x));
  return list;
}

Json clean_list(const std::vector<std::string>& texts) {
  return list_of(texts, [](const std::string& s) { return Json(clean(s)); });
}

Json dim(const BoundDim& d) {
  return {{"name", clean(d.name)}, {"size", d.size}, {"origin", d.assumed ? "assumed" : d.of_file ? "file" : "given"}};
}

void add_training(Json& j, const TrainingSetup& s) {
  j["loss"] = name_of(s.loss);
  j["optimizer"] = {{"kind", name_of(s.optimizer.kind)},
                    {"implementation", name_of(s.optimizer.impl)},
                    {"momentum", s.optimizer.momentum},
                    {"amsgrad", s.optimizer.amsgrad},
                    {"weight_decay", s.optimizer.weight_decay}};
  j["accumulate"] = s.accumulate;
  j["clip_grad_norm"] = s.clip_grad_norm;
  j["checkpoint"] = clean_list(s.checkpoint);
  if (s.checkpoint_optimal)
    j["checkpoint"].push_back(s.checkpoint_budget ? fmt::format("optimal:{}", s.checkpoint_budget->count) : "optimal");
  j["zero_grad"] = name_of(s.zero_grad);
  j["frozen"] = clean_list(s.frozen);
}

Json parallel(const TrainingSetup& s) {
  const ParallelSetup& p = s.parallel;
  Json j{{"gpus", p.gpus},
         {"data", p.data},
         {"sharding", name_of(p.sharding)},
         {"tensor", p.tensor},
         {"sequence_parallel", p.sequence_parallel},
         {"loss_parallel", p.loss_parallel},
         {"pipeline", p.pipeline},
         {"context", p.context},
         {"expert", p.expert},
         {"description", describe(p)}};
  if (strategy_of(p).buckets)
    j["ddp"] = {{"bucket_cap_mib", p.bucket_cap_mib.value_or(profile_of(s).ddp.default_bucket_mib)},
                {"gradient_as_bucket_view", p.gradient_as_bucket_view},
                {"lazy_bucket_allocation", p.lazy_buckets}};
  if (strategy_of(p).units) {
    const auto dtype = [](const std::optional<DType>& d) { return d ? Json(std::string(name_of(*d))) : Json(nullptr); };
    j["fsdp"] = {{"shard_ranks", shard_group(p)},
                 {"reshard_after_forward", p.reshard_after_forward},
                 {"reduce_scatter_max_input_buffers", p.reduce_buffers},
                 {"keep_unsharded_storage", p.keep_unsharded},
                 {"param_dtype", dtype(p.param_dtype)},
                 {"reduce_dtype", dtype(p.reduce_dtype)}};
  }
  if (p.pipeline > 1) {
    j["schedule"] = {
        {"name", name_of(p.schedule)}, {"chunks_per_rank", p.virtual_stages}, {"micro_batches", p.micro_batches}};
    if (!p.split.empty()) j["schedule"]["blocks_per_stage"] = p.split;
  }
  return j;
}

Json setup(const Answer& a) {
  const TrainingSetup& s = a.setup;
  Json j{{"mode", name_of(s.mode)}, {"precision", precision_of(s)}, {"dims", list_of(a.dims, dim)}};
  if (!a.weights.empty()) j["weights"] = a.weights;
  if (runs_nodes(s.runtime)) {
    j["runtime"] = {{"name", s.runtime.name},
                    {"title", runtime_of(s).title(s)},
                    {"version", s.ort.version},
                    {"why", clean(s.ort.version_why)},
                    {"exact", s.ort.version_evidence != Evidence::assumed},
                    {"options", Json::object()}};
    for (const auto& [name, value] : ort_options(s.ort)) j["runtime"]["options"][name] = value;
  }
  if (s.mode == Mode::training) add_training(j, s);
  if (is_parallel(s.parallel) || in_megatron(s.parallel)) j["parallel"] = parallel(s);
  j["torch"] = {{"version", profile_of(s).version},
                {"why", clean(s.runtime.why)},
                {"exact", s.runtime.evidence == Evidence::recorded ||
                              (s.runtime.evidence != Evidence::assumed && profile_of(s).compared)}};
  for (const auto& [name, value] : s.runtime.environment) j["torch"]["environment"][name] = clean(value);
  j["attention"] = name_of(s.attention);
  j["expandable_segments"] = s.allocator.expandable_segments;
  j["steps"] = s.steps;
  j["strategies"] = strategy_words(s);
  return j;
}

/// Members are appended one by one: a braced list would copy every value, and look for each name among the earlier
/// ones.
Json tensor(const LiveTensor& t, const std::string& id) {
  Json j(Json::value_t::object);
  std::vector<std::pair<const std::string, Json>>& members = j.get_ref<Json::object_t&>();
  members.reserve(12);
  members.emplace_back("id", id);
  members.emplace_back("name", clean(t.name));
  members.emplace_back("shape", t.sizes);
  members.emplace_back("dtype", t.dtype.empty() ? Json(nullptr) : Json(t.dtype));
  members.emplace_back("bytes", t.requested.count);
  members.emplace_back("block_bytes", t.block.count);
  members.emplace_back("category", name_of(t.category));
  members.emplace_back("producer", clean(t.op));
  members.emplace_back("module", clean(t.module));
  members.emplace_back("reason", clean(t.reason));
  members.emplace_back("born_op", t.born_op);
  members.emplace_back("dies_op", t.dies_op < 0 ? Json(nullptr) : Json(t.dies_op));
  return j;
}

Json group(const TensorGroup& g) {
  return {{"count", g.count}, {"bytes", g.bytes}, {"category", g.category}, {"name", g.name},
          {"shape", g.shape}, {"dtype", g.dtype}, {"reason", g.reason}};
}

Json input(const Answer& a) {
  return {{"path", clean(a.path)},
          {"format", clean(a.format)},
          {"graph_hash", a.graph_hash},
          {"file_bytes", a.file_bytes},
          {"parameters", a.estimate.parameter_count},
          {"trainable_parameters", a.estimate.trainable_count},
          {"inputs", list_of(a.inputs, [](const Input& i) {
             return Json{{"name", clean(i.name)}, {"dtype", i.dtype}, {"shape", i.sizes}};
           })}};
}

Json device(const Answer& a) {
  const Device& d = a.choice.device;
  return {{"key", d.key},
          {"name", d.name},
          {"given", a.device_given},
          {"usable_bytes", a.judgement.usable.count},
          {"context_bytes", d.context.count},
          {"explanation", clean(a.choice.explanation)},
          {"source", clean(d.source)}};
}

Json summary(const Answer& a) {
  const Estimate& e = a.estimate;
  Certainty sure = certainty_of(e);
  if (runs_nodes(a.setup.runtime)) {  // it asks other things, and there is nothing to record
    if (sure.word == "exact") sure.why = "the file allows no other reading of what a session asks for";
    sure.surer.clear();
  }
  const auto of_device = [&](Json value) { return a.device_given ? std::move(value) : Json(nullptr); };
  return {{"verdict", of_device(name_of(a.judgement.verdict))},
          {"peak_bytes", e.peak.process.count},
          {"low_bytes", e.low.process.count},
          {"high_bytes", e.high.process.count},
          {"limit_bytes", of_device(a.judgement.usable.count)},
          {"margin_bytes", of_device(a.margin.count)},
          {"headroom_bytes", of_device(a.judgement.headroom.count)},
          {"why", of_device(clean(a.judgement.why))},
          {"out_of_memory_at", e.out_of_memory ? Json(clean(e.out_of_memory_at)) : Json(nullptr)},
          {"certainty", sure.word},
          {"certainty_why", clean(sure.why)},
          {"confirmed", a.confirmation ? Json(a.confirmation->agrees) : Json(nullptr)},
          {"confirmation", a.confirmation ? Json(clean(a.confirmation->text)) : Json(nullptr)},
          {"surer", sure.surer.empty() ? Json(nullptr) : Json(sure.surer)}};
}

Json step(const StepSummary& s) {
  return {{"step", s.step},
          {"peak", counters(s.peak)},
          {"allocated_after_bytes", s.allocated_after.count},
          {"requested_after_bytes", s.requested_after.count}};
}

Json phase(const PhasePeak& p) {
  return {{"phase", name_of(p.phase)},
          {"requested_bytes", p.requested.count},
          {"allocated_bytes", p.allocated.count},
          {"reserved_bytes", p.reserved.count}};
}

Json part(const CategoryPart& p) {
  return {{"category", name_of(p.part)}, {"bytes", p.bytes.count}, {"basis", name_of(p.basis)}};
}

Json rank_class(const RankClass& c) {
  return {{"name", c.name},           {"gpus", c.gpus},           {"blocks", c.blocks},
          {"in_flight", c.in_flight}, {"peak", counters(c.peak)}, {"breakdown", list_of(c.parts, part)}};
}

Json alternative(const Alternative& a) {
  return {{"flags", clean(a.flags)},
          {"peak_bytes", a.peak.count},
          {"verdict", name_of(a.verdict)},
          {"headroom_bytes", a.headroom.count}};
}

Json card(const Card& c) {
  return {{"key", c.device.key},
          {"usable_bytes", c.device.total.count},
          {"peak_bytes", c.peak.count},
          {"verdict", name_of(c.verdict)}};
}

Json other_setups(const Answer& a) {
  return {{"inference", a.inference ? alternative(*a.inference) : Json(nullptr)},
          {"largest_batch", a.largest ? Json{{"batch", a.largest->batch},
                                             {"peak_bytes", a.largest->peak.count},
                                             {"at_least", a.largest->at_least}}
                                      : Json(nullptr)},
          {"changes", list_of(a.changes, alternative)},
          {"cards", list_of(a.cards, card)}};
}

struct Sum {
  std::int64_t bytes = 0, tensors = 0;
};

Json sums(const std::map<std::string, Sum>& by_name, const char* member) {
  std::vector<std::pair<std::string, Sum>> order(by_name.begin(), by_name.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& x, const auto& y) { return x.second.bytes > y.second.bytes; });
  Json list = Json::array();
  for (const auto& [name, sum] : order)
    list.push_back({{member, name}, {"bytes", sum.bytes}, {"tensors", sum.tensors}});
  return list;
}

/// Named after a parameter or buffer.
bool is_of_weights(Category c) {
  return c == Category::parameter || c == Category::buffer || c == Category::gradient || c == Category::optimizer_state;
}

}  // namespace

std::string owner_of(const Json& tensor) {
  const auto& module = tensor.at("module").get_ref<const std::string&>();
  if (!module.empty()) return module;
  const auto& name = tensor.at("name").get_ref<const std::string&>();
  const std::size_t dot = name.find_last_of('.');
  const auto category = value_in(category_names, tensor.at("category").get_ref<const std::string&>());
  if (dot == std::string::npos || !category || !is_of_weights(*category)) return {};
  std::string path = name.substr(0, dot);
  // "layer1.0.conv1.weight.exp_avg" is of the module layer1.0.conv1
  if (category == Category::optimizer_state)
    if (const std::size_t parent = path.find_last_of('.'); parent != std::string::npos) path.resize(parent);
  return path;
}

std::vector<TensorGroup> groups_at_peak(const Json& document) {
  const auto given = document.find("groups_at_peak");
  if (given == document.end()) return groups_of(rows_of(document.at("tensors_at_peak")));
  std::vector<TensorGroup> groups;
  for (const Json& g : *given)
    groups.push_back(
        {g.at("count"), g.at("bytes"), g.at("category"), g.at("name"), g.at("shape"), g.at("dtype"), g.at("reason")});
  return groups;
}

void add_sums(Json& document) {
  std::map<std::string, Sum> modules, ops, dtypes;
  for (const Json& t : document.at("tensors_at_peak")) {
    const std::int64_t bytes = t.at("bytes");
    for (Sum* sum : {&modules[owner_of(t)], &ops[t.at("producer").get_ref<const std::string&>()],
                     &dtypes[t.at("dtype").is_null() ? std::string() : t.at("dtype").get<std::string>()]}) {
      sum->bytes += bytes;
      ++sum->tensors;
    }
  }
  document["at_peak_by_module"] = sums(modules, "module");
  document["at_peak_by_op"] = sums(ops, "op");
  document["at_peak_by_dtype"] = sums(dtypes, "dtype");
}

Json ranges(const Estimate& e) {
  const auto ends = [](Bytes low, Bytes high) { return Json{{"low_bytes", low.count}, {"high_bytes", high.count}}; };
  Json sources = Json::array();
  for (const RangeSource& s : e.sources)
    if (s.moves())
      sources.push_back({{"about", name_of(s.about)},
                         {"what", clean(s.text)},
                         {"below", counters(s.below)},
                         {"above", counters(s.above)}});
  return {{"requested_bytes", ends(e.low.requested, e.high.requested)},
          {"allocated_bytes", ends(e.low.allocated, e.high.allocated)},
          {"reserved_bytes", ends(e.low.reserved, e.high.reserved)},
          {"process_bytes", ends(e.low.process, e.high.process)},
          {"sources", sources}};
}

Json document_of(const Answer& a, const Options& options, Detail detail) {
  const Estimate& e = a.estimate;
  Json j;
  j["schema_version"] = report_schema_version;
  j["kind"] = "report";
  j["tool"] = {{"name", "memplan"}, {"version", MEMPLAN_VERSION}};
  j["command"] = {{"model", clean(a.path)}, {"flags", clean_list(options.setup_flags)}};
  j["input"] = input(a);
  j["setup"] = setup(a);
  j["device"] = device(a);
  j["summary"] = summary(a);
  j["ranges"] = ranges(e);
  j["counters"] = counters(e.peak);
  j["steps"] = list_of(e.steps, step);
  j["phases"] = list_of(e.phases, phase);
  j["breakdown"] = list_of(e.parts, part);
  j["peak"] = {{"step", e.peak_step},
               {"phase", name_of(e.peak_phase)},
               {"op", clean(e.peak_op)},
               {"module", clean(e.peak_module)}};
  if (!e.ranks.empty()) j["ranks"] = list_of(e.ranks, rank_class);
  Json& tensors = j["tensors_at_peak"] = Json::array();
  if (detail == Detail::sums) {
    for (std::size_t i = 0; i < e.live_at_peak.size(); ++i)
      tensors.push_back(tensor(e.live_at_peak[i], std::to_string(i)));
    add_sums(j);
  }
  if (detail == Detail::groups) j["groups_at_peak"] = list_of(groups_of(rows_of(e.live_at_peak)), group);
  j["allocator"] = {{"retries", e.retries}, {"unlimited_process_bytes", e.unlimited_process.count}};
  j["alternatives"] = other_setups(a);
  j["assumptions"] = clean_list(e.assumptions);
  j["unmodelled"] = list_of(e.unmodelled, [](const Unmodelled& u) {
    return Json{{"op", clean(u.op)},
                {"count", u.count},
                {"handling", clean(u.handling)},
                {"widened_by_bytes", u.widened_by.count}};
  });
  j["recovered"] = list_of(e.recovered, [](const Recovery& r) {
    return Json{{"op", clean(r.op)}, {"from", clean(r.from)}, {"count", r.count}};
  });
  j["warnings"] = list_of(e.notes, [](const Fact& n) { return Json{{"code", n.code}, {"message", clean(n.text)}}; });
  const auto verdict = [](Verdict v) { return Json(name_of(v)); };
  j["gate"] = {{"fail_on", list_of(options.gate.fail_on, verdict)}, {"exit_code", a.exit_code}};
  if (!a.node_stats.empty())
    j["ort_node_stats"] = list_of(a.node_stats, [](const ort::NodeStats& n) {
      return Json{{"name", n.name}, {"weights_bytes", n.weights}, {"buffers_bytes", n.buffers}};
    });
  if (a.run) add_run(j, *a.run);
  return j;
}

std::string one_line(const Json& document) {
  const Json& s = document.at("summary");
  if (kind_of(document) == check_document)
    return fmt::format("verdict={} failed={} targets={}", text_of(s, "status"), s.at("failed").get<std::int64_t>(),
                       s.at("targets").get<std::int64_t>());
  if (kind_of(document) == diff_document) return fmt::format("delta={}", s.at("delta_bytes").get<std::int64_t>());
  const std::int64_t peak = s.at("peak_bytes");
  const auto gate = document.at("gate").find("status");
  const std::string status = gate == document.at("gate").end() ? "" : " gate=" + gate->get<std::string>();
  if (s.at("verdict").is_null()) return fmt::format("peak={} limit=none{}", peak, status);
  return fmt::format("verdict={} peak={} limit={}{}", s.at("verdict").get<std::string>(), peak,
                     s.at("limit_bytes").get<std::int64_t>(), status);
}

}  // namespace memplan::cli
