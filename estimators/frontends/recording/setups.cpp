#include "estimators/frontends/recording/setups.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "estimators/base/error.h"
#include "estimators/base/whole_number.h"
#include "estimators/setup/field.h"
#include "estimators/setup/names.h"

namespace memplan::recording {

namespace {

using nlohmann::json;

/// A field that a recording fixes and that is asked for otherwise.
struct Difference {
  std::string where;   ///< the field: setting(Field::precision)
  std::string asked;   ///< with its value: setting(Field::precision, "amp-bf16")
  std::string remedy;  ///< as memplan.record says it: "precision=\"amp-bf16\""
};

/// How a message says a field, and the words where only memplan.record has it (weight decay).
std::string said(Field field, std::string_view value = {}) { return setting(field, value); }
std::string said(std::string_view words, std::string_view value = {}) {
  return value.empty() ? std::string(words) : fmt::format("{} {}", words, value);
}

template <class T, class Named>
void compare(std::vector<Difference>& out, Named named, const char* key, const T& recorded, const T& asked) {
  if (recorded == asked) return;
  if constexpr (std::is_same_v<T, std::string>)
    out.push_back({said(named), said(named, asked), fmt::format("{}=\"{}\"", key, asked)});
  else if constexpr (std::is_same_v<T, bool>)
    out.push_back(
        {said(named), (asked ? "" : "no ") + said(named), fmt::format("{}={}", key, asked ? "True" : "False")});
  else
    out.push_back({said(named), said(named, fmt::format("{}", asked)), fmt::format("{}={}", key, asked)});
}

void compare_optimizers(std::vector<Difference>& out, const OptimizerSetup& have, const OptimizerSetup& want) {
  compare<std::string>(out, Field::optimizer, "optimizer", name_of(have.kind), name_of(want.kind));
  if (have.kind != want.kind || want.kind == OptimizerKind::none) return;
  compare<std::string>(out, Field::optimizer_impl, "impl", name_of(have.impl), name_of(want.impl));
  // Only whether there is one decides what is allocated.
  compare(out, Field::momentum, "momentum",
          have.momentum != 0 ? want.momentum != 0 ? want.momentum : have.momentum : 0.0, want.momentum);
  compare(out, "weight decay", "weight_decay",
          have.weight_decay != 0 ? want.weight_decay != 0 ? want.weight_decay : have.weight_decay : 0.0,
          want.weight_decay);
  compare(out, "nesterov", "nesterov", have.nesterov, want.nesterov);
  compare(out, "amsgrad", "amsgrad", have.amsgrad, want.amsgrad);
}

std::vector<Difference> differences(const TrainingSetup& have, const TrainingSetup& want) {
  std::vector<Difference> out;
  compare<std::string>(out, Field::mode, "mode", name_of(have.mode), name_of(want.mode));
  compare<std::string>(out, Field::precision, "precision", name_of(have.precision), name_of(want.precision));
  compare(out, Field::compile, "compile", have.compile, want.compile);
  compare(out, Field::activation_memory_budget, "activation_memory_budget", have.activation_memory_budget,
          want.activation_memory_budget);
  if (want.steps > have.steps) compare(out, Field::steps, "steps", have.steps, want.steps);
  if (want.mode == Mode::inference) return out;
  compare_optimizers(out, have.optimizer, want.optimizer);
  compare(out, Field::accumulate, "accumulate", have.accumulate, want.accumulate);
  compare(out, Field::clip_grad_norm, "clip", have.clip_grad_norm, want.clip_grad_norm);
  compare<std::string>(out, Field::zero_grad, "zero_grad", name_of(have.zero_grad), name_of(want.zero_grad));
  compare<std::string>(out, Field::loss, "loss", name_of(have.loss), name_of(want.loss));
  return out;
}

std::string recorded_setups(const Recording& recording) {
  std::string out;
  for (const Run& run : recording.runs) out += (out.empty() ? "" : ", ") + name_of_run(run);
  return out;
}

}  // namespace

std::string beyond_recording(const TrainingSetup& s) {
  if (is_parallel(s.parallel)) return "a job on several GPUs";
  if (!s.checkpoint.empty() || s.checkpoint_optimal || !s.checkpoint_save.empty()) return setting(Field::checkpoint);
  if (s.offload.any()) return setting(Field::offload);
  if (s.lora) return setting(Field::lora);
  if (s.kv_cache) return setting(Field::kv_cache);
  if (s.fp8 != Fp8::none) return "fp8";
  if (s.channels_last) return setting(Field::channels_last);
  if (s.keep_loss_history) return setting(Field::keep_loss_history);
  if (s.keep_output) return "an output that outlives the step";
  if (s.empty_cache) return setting(Field::empty_cache);
  if (!s.frozen.empty()) return setting(Field::frozen);
  if (s.attention != AttentionBackend::automatic) return setting(Field::attention);
  return {};
}

std::string words_of(const TrainingSetup& s) {
  const auto truth = [](bool b) { return b ? "true" : "false"; };
  std::string out = fmt::format("mode={},precision={},steps={}", name_of(s.mode), precision_of(s), s.steps);
  if (s.compile) out += ",compile=true";
  if (s.activation_memory_budget < 1) out += fmt::format(",activation_memory_budget={}", s.activation_memory_budget);
  if (s.mode == Mode::inference) return out;
  return out + fmt::format(
                   ",optimizer={},impl={},momentum={},weight_decay={},nesterov={},amsgrad={},accumulate={},clip={},"
                   "zero_grad={},loss={}",
                   name_of(s.optimizer.kind), name_of(s.optimizer.impl), s.optimizer.momentum, s.optimizer.weight_decay,
                   truth(s.optimizer.nesterov), truth(s.optimizer.amsgrad), s.accumulate, truth(s.clip_grad_norm),
                   name_of(s.zero_grad), name_of(s.loss));
}

TrainingSetup read_setup(const json& j, const std::string& where) {
  TrainingSetup s;
  // The command line's other spellings ("train", "sgd-momentum", "fp8") stand for more than one member and are never
  // written, so a word counts only if it is the name of what it stands for.
  const auto word = [&](const char* key, auto& into, const auto& names, auto member) {
    const auto& text = j.at(key).get_ref<const std::string&>();
    const auto found = value_in(names, text);
    if (!found || name_of(std::invoke(member, *found)) != text)
      fail_input(fmt::format("the recording was made with {} '{}', which this memplan does not know", key, text), where,
                 "use a newer memplan");
    into = std::invoke(member, *found);
  };
  word("mode", s.mode, mode_names, std::identity());
  word("precision", s.precision, precision_names, &PrecisionChoice::precision);
  word("optimizer", s.optimizer.kind, optimizer_names, &OptimizerChoice::kind);
  word("impl", s.optimizer.impl, optimizer_impl_names, std::identity());
  word("zero_grad", s.zero_grad, zero_grad_names, std::identity());
  word("loss", s.loss, loss_names, std::identity());
  s.optimizer.momentum = j.at("momentum").get<double>();
  s.optimizer.weight_decay = j.at("weight_decay").get<double>();
  s.optimizer.nesterov = j.at("nesterov").get<bool>();
  s.optimizer.amsgrad = j.at("amsgrad").get<bool>();
  s.accumulate = whole_number_of(j.at("accumulate"), "the recording");
  s.clip_grad_norm = j.at("clip").get<bool>();
  s.steps = whole_number_of(j.at("steps"), "the recording");
  s.compile = j.value("compile", false);
  s.activation_memory_budget = j.value("activation_memory_budget", 1.0);
  return s;
}

TrainingSetup as_recorded(const Recording& recording, TrainingSetup s, const IsGiven& given) {
  // A recording that has nothing else is asked about the compiled program.
  if (!recording.plain && !recording.runs.empty() &&
      std::all_of(recording.runs.begin(), recording.runs.end(), [](const Run& r) { return r.setup.compile; }))
    s.compile = true;
  if (recording.script.empty() || recording.runs.empty()) return s;
  const TrainingSetup& ran = recording.runs.front().setup;
  const auto take = [&](Field field, auto& into, const auto& value) {
    if (!given(field)) into = value;
  };
  take(Field::mode, s.mode, ran.mode);
  if (!given(Field::autocast)) take(Field::precision, s.precision, ran.precision);
  // Settings of another optimizer say nothing of the one that is asked for.
  if (!given(Field::optimizer) || s.optimizer.kind == ran.optimizer.kind) {
    const OptimizerSetup asked = s.optimizer;
    s.optimizer = ran.optimizer;
    if (given(Field::optimizer_impl)) s.optimizer.impl = asked.impl;
    if (given(Field::momentum)) s.optimizer.momentum = asked.momentum;
  }
  take(Field::accumulate, s.accumulate, ran.accumulate);
  take(Field::clip_grad_norm, s.clip_grad_norm, ran.clip_grad_norm);
  take(Field::zero_grad, s.zero_grad, ran.zero_grad);
  take(Field::loss, s.loss, ran.loss);
  take(Field::steps, s.steps, ran.steps);
  take(Field::compile, s.compile, ran.compile);
  take(Field::activation_memory_budget, s.activation_memory_budget, ran.activation_memory_budget);
  return s;
}

std::string name_of_run(const Run& run) {
  const TrainingSetup& s = run.setup;
  std::string out = fmt::format("{} {}", name_of(s.mode), name_of(s.precision));
  if (s.mode == Mode::training) out += fmt::format(" {}", name_of(s.optimizer.kind));
  if (s.compile) out += " compiled";
  if (s.activation_memory_budget < 1) out += fmt::format(" with a budget of {:g}", s.activation_memory_budget);
  return out;
}

std::optional<std::size_t> exact_run(const Recording& recording, const TrainingSetup& setup) {
  if (recording.by_calls || !beyond_recording(setup).empty()) return std::nullopt;
  for (std::size_t i = 0; i < recording.runs.size(); ++i)
    if (differences(recording.runs[i].setup, setup).empty()) return i;
  return std::nullopt;
}

std::optional<std::size_t> nearest_run(const Recording& recording, const TrainingSetup& setup) {
  if (setup.compile) return std::nullopt;  // calls of an eager pass do not say what the compiler makes of them
  std::optional<std::size_t> best;
  std::size_t least = 0;
  for (std::size_t i = 0; i < recording.runs.size(); ++i) {
    const Run& run = recording.runs[i];
    if (!run.calls || (setup.mode == Mode::training && run.setup.mode == Mode::inference)) continue;
    const std::size_t far = (run.setup.mode != setup.mode ? 10'000U : 0U) +
                            (run.setup.precision != setup.precision ? 100U : 0U) + differences(run.setup, setup).size();
    if (best && far >= least) continue;
    best = i;
    least = far;
  }
  return best;
}

std::size_t run_of(const Recording& recording, const TrainingSetup& setup) {
  if (!recording.script.empty() && !recording.runs.front().why.empty() && !exact_run(recording, setup))
    fail(ErrorKind::usage,
         fmt::format("the recording answers what the script ran and nothing else: {}", recording.runs.front().why),
         recording.script, "change the script and record it again with memplan observe");
  if (const std::string what = beyond_recording(setup); !what.empty())
    fail(ErrorKind::usage, fmt::format("a recording does not tell what {} would change", what), what,
         "ask it of a graph of the module, memplan.export(module, args, kwargs, \"model.pt2\"), or change the module "
         "itself "
         "and record it again with memplan.record");
  std::vector<Difference> fewest;
  for (std::size_t i = 0; i < recording.runs.size(); ++i) {
    std::vector<Difference> found = differences(recording.runs[i].setup, setup);
    if (found.empty()) return i;
    if (i == 0 || found.size() < fewest.size()) fewest = std::move(found);
  }
  std::string asked, remedy = fmt::format("mode=\"{}\"", name_of(setup.mode));
  for (const Difference& d : fewest) asked += (asked.empty() ? "" : " ") + d.asked;
  // The dictionary is complete: what the nearest run has besides its defaults is said as well.
  TrainingSetup plain;
  plain.mode = setup.mode;
  for (const Difference& d : differences(plain, setup)) remedy += ", " + d.remedy;
  fail(ErrorKind::usage, fmt::format("the recording has no run with {}; it has {}", asked, recorded_setups(recording)),
       fewest.empty() ? std::string() : fewest.front().where,
       fmt::format("record it: memplan.record(…, setups=[dict({})])", remedy));
}

}  // namespace memplan::recording
