#include "planner/size.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/answer/answer.h"
#include "cli/commands/commands.h"
#include "cli/report/suggestion.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/style.h"
#include "estimators/setup/runtimes.h"
#include "planner/checkpointing/plan.h"
#include "planner/fewest.h"
#include "planner/kv_room.h"

namespace memplan::cli {

namespace {

struct SizeAnswer {
  DeviceChoice choice;
  bool device_given = false;
  Estimate estimate;
  std::vector<BoundDim> dims;
  Judgement judgement;
  std::optional<LargestBatch> batch;
  std::optional<LargestSequence> sequence;
  std::optional<LargestKvCache> cache;  ///< of inference
  std::vector<PricedCard> cards;
  std::optional<FewestGpus> gpus;  ///< where one is not enough
  bool priced = false;
  int exit_code = 0;
};

SizeAnswer compute_size(const Options& given) {
  SizeAnswer a;
  a.choice = device_of(given);
  a.device_given = given.gpu.has_value();
  Progress progress;
  const Prices prices = given.size.prices.empty() ? Prices{} : read_prices(given.size.prices);
  const Job job = load_job(given);
  const Options& options = job.options;
  const Model& model = job.model;
  const MarginOf margin = [&](const Device& d) { return margin_of(options.setup, d); };
  const Tape tape = unwrap(tape_of(model, options.setup));
  a.dims = tape.dims;
  a.estimate = unwrap(answer_for(model, tape, options.setup, a.choice.device));
  a.judgement = judge(a.estimate, a.choice.device, margin(a.choice.device));
  if (a.device_given) {
    progress.show("the largest batch");
    a.batch = largest_batch(model, options.setup, a.choice.device, margin, a.estimate);
    progress.show("the largest sequence");
    a.sequence = largest_sequence(model, options.setup, a.choice.device, margin);
  }
  const bool of_torch = !runs_nodes(options.setup.runtime);
  if (a.device_given && of_torch && options.setup.mode == Mode::inference) {
    progress.show("the largest cache of keys and values");
    a.cache = largest_kv_cache(model, options.setup, a.choice.device, margin);
  }
  if (a.device_given && of_torch && a.judgement.verdict != Verdict::fits) {
    progress.show("the fewest GPUs");
    a.gpus = fewest_gpus(model, options.setup, a.choice.device, margin);
  }
  progress.show("the smallest cards");
  a.cards = cards_that_fit(tape, options.setup, margin, a.estimate, prices, 5);
  a.priced = !prices.empty();
  const bool something = (a.batch && a.batch->batch > 0) || (a.sequence && a.sequence->length > 0) ||
                         (a.cache && a.cache->tokens > 0) || a.judgement.verdict == Verdict::fits ||
                         (!a.device_given && !a.cards.empty());
  a.exit_code = something || options.gate.exit_zero ? 0 : 1;
  return a;
}

std::string cache_text(const LargestKvCache& c) {
  const KvBudget& b = c.budget;
  const std::string parts = fmt::format("{} of {} are left by weights ({}), forward pass ({}) and context ({})",
                                        to_human(std::max(b.left, Bytes(0))), to_human(b.limit), to_human(b.weights),
                                        to_human(b.activations), to_human(b.other));
  if (c.tokens == 0) return fmt::format("none: {}", parts);
  return fmt::format("{} tokens of {} ({} sequences of {}; peak {}); {}", grouped(c.tokens), to_human(c.per_token),
                     grouped(c.sequences), grouped(c.length), to_human(c.peak), parts);
}

std::string size_text(const SizeAnswer& a, const Options& options, const Style& style) {
  std::string sizes;
  for (const BoundDim& d : a.dims)
    sizes += fmt::format("{}{}={}{}", sizes.empty() ? " at " : " ", clean(d.name), d.size,
                         d.assumed   ? " (assumed)"
                         : d.of_file ? " (the file's)"
                                     : "");
  std::string out = wrap(fmt::format("{}  {} parameters  needs {}{}", clean(options.argument),
                                     short_count(a.estimate.parameter_count), to_human(a.estimate.peak.process), sizes),
                         style.width, 2) +
                    "\n";
  if (a.device_given)
    out +=
        wrap(fmt::format("{}  margin {}", clean(a.choice.explanation), to_human(a.judgement.margin)), style.width, 2) +
        "\n";
  out += "\n";
  const auto line = [&](const char* name, const std::string& text) {
    out += fmt::format("{:<18}", name) + wrap(text, style.width, 18, 18) + "\n";
  };
  if (a.device_given) {
    if (!a.batch)
      line("largest batch", "the file fixes the batch");
    else if (a.batch->batch == 0)
      line("largest batch", fmt::format("none: one sample needs {}", to_human(a.batch->peak)));
    else
      line("largest batch", fmt::format("{}{} (peak {})", a.batch->at_least ? "at least " : "", grouped(a.batch->batch),
                                        to_human(a.batch->peak)));
    if (!a.sequence)
      line("largest sequence", "the file has no open sequence dimension");
    else if (a.sequence->length == 0)
      line("largest sequence", fmt::format("none: one token needs {}", to_human(a.sequence->peak)));
    else
      line("largest sequence", fmt::format("{}{} (peak {}{})", a.sequence->at_least ? "at least " : "",
                                           grouped(a.sequence->length), to_human(a.sequence->peak),
                                           a.sequence->at_table ? "; the model's table of positions ends there" : ""));
  }
  if (a.cache) line("largest KV cache", cache_text(*a.cache));
  if (a.device_given && a.judgement.verdict != Verdict::fits && options.setup.mode == Mode::training &&
      !is_parallel(options.setup.parallel))
    line("fewest GPUs",
         a.gpus ? enough_text(*a.gpus, a.choice.device)
                : "no number of them holds the activations of this batch: memplan suggest says what to change");
  std::string cards;
  for (const PricedCard& c : a.cards)
    cards += fmt::format("{}{} ({} of {}{})", cards.empty() ? "" : ", ", c.card.device.key, to_human(c.card.peak),
                         to_human(c.card.device.total), c.price ? fmt::format(", {:g} per hour", *c.price) : "");
  line(a.priced ? "cheapest cards" : "smallest cards",
       cards.empty() ? "none is large enough: memplan suggest says what to change" : cards);
  return out;
}

std::string size_json(const SizeAnswer& a, const Options& options) {
  using Json = nlohmann::ordered_json;
  Json j;
  j["schema_version"] = planner_schema_version;
  j["tool"] = {{"name", "memplan"}, {"version", MEMPLAN_VERSION}};
  j["command"] = "size";
  j["input"] = {{"path", clean(options.argument)}, {"parameters", a.estimate.parameter_count}};
  j["device"] = a.device_given ? Json{{"key", a.choice.device.key},
                                      {"name", a.choice.device.name},
                                      {"usable_bytes", a.judgement.usable.count},
                                      {"margin_bytes", a.judgement.margin.count}}
                               : Json(nullptr);
  j["peak_bytes"] = a.estimate.peak.process.count;
  j["largest_batch"] =
      a.batch ? Json{{"batch", a.batch->batch}, {"peak_bytes", a.batch->peak.count}, {"at_least", a.batch->at_least}}
              : Json(nullptr);
  j["largest_sequence"] =
      a.sequence ? Json{{"length", a.sequence->length},
                        {"peak_bytes", a.sequence->peak.count},
                        {"position_table", a.sequence->table > 0 ? Json(a.sequence->table) : Json(nullptr)},
                        {"at_least", a.sequence->at_least}}
                 : Json(nullptr);
  if (a.cache) {
    const LargestKvCache& c = *a.cache;
    j["largest_kv_cache"] = {{"tokens", c.tokens},
                             {"block", c.block},
                             {"length", c.length},
                             {"sequences", c.sequences},
                             {"bytes_per_token", c.per_token.count},
                             {"peak_bytes", c.peak.count},
                             {"budget",
                              {{"limit_bytes", c.budget.limit.count},
                               {"weights_bytes", c.budget.weights.count},
                               {"activations_bytes", c.budget.activations.count},
                               {"other_bytes", c.budget.other.count},
                               {"left_bytes", c.budget.left.count}}}};
  } else {
    j["largest_kv_cache"] = nullptr;
  }
  j["fewest_gpus"] =
      a.gpus ? Json{{"gpus", a.gpus->gpus}, {"flags", clean(a.gpus->flags)}, {"peak_bytes", a.gpus->peak.count}}
             : Json(nullptr);
  j["cards"] = Json::array();
  for (const PricedCard& c : a.cards)
    j["cards"].push_back({{"key", c.card.device.key},
                          {"usable_bytes", c.card.device.total.count},
                          {"peak_bytes", c.card.peak.count},
                          {"price_per_hour", c.price ? Json(*c.price) : Json(nullptr)}});
  j["exit_code"] = a.exit_code;
  return j.dump(2) + "\n";
}

}  // namespace

int run_size(const Options& options) {
  const SizeAnswer a = compute_size(options);
  write_out(options.format == Format::json ? size_json(a, options) : size_text(a, options, make_style(options)),
            options.output);
  return a.exit_code;
}

}  // namespace memplan::cli
