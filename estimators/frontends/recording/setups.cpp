#include "estimators/frontends/recording/setups.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "estimators/base/error.h"
#include "estimators/frontends/recording/names.h"
#include "estimators/setup/field.h"

namespace memplan::recording {

namespace {

using nlohmann::json;

/// A field that a recording fixes: what was recorded, what is asked for, and how memplan.export says the latter.
struct Difference {
  std::string recorded, asked;  ///< setting(Field::precision, "fp32"), setting(Field::precision, "amp-bf16")
  std::string remedy;           ///< "precision=\"amp-bf16\""; empty: not something that can be recorded
};

/// How a message says a value: by its field, or in words where only memplan.export has it (weight decay).
template <class Named>
std::string said(Named named, const std::string& value) {
  if constexpr (std::is_same_v<Named, Field>)
    return setting(named, value);
  else
    return fmt::format("{} {}", named, value);
}
template <class Named>
std::string said(Named named, bool on) {
  if constexpr (std::is_same_v<Named, Field>)
    return on ? setting(named) : "no " + setting(named);
  else
    return on ? std::string(named) : fmt::format("no {}", named);
}

template <class T, class Named>
void compare(std::vector<Difference>& out, Named named, const char* key, const T& recorded, const T& asked) {
  if (recorded == asked) return;
  if constexpr (std::is_same_v<T, std::string>)
    out.push_back({said(named, recorded), said(named, asked), fmt::format("{}=\"{}\"", key, asked)});
  else if constexpr (std::is_same_v<T, bool>)
    out.push_back({said(named, recorded), said(named, asked), fmt::format("{}={}", key, asked ? "True" : "False")});
  else
    out.push_back({said(named, fmt::format("{}", recorded)), said(named, fmt::format("{}", asked)),
                   fmt::format("{}={}", key, asked)});
}

void compare_optimizers(std::vector<Difference>& out, const OptimizerSetup& have, const OptimizerSetup& want) {
  compare<std::string>(out, Field::optimizer, "optimizer", word_of(have.kind), word_of(want.kind));
  if (have.kind != want.kind || want.kind == OptimizerKind::none) return;
  compare<std::string>(out, Field::optimizer_impl, "impl", word_of(have.impl), word_of(want.impl));
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
  compare<std::string>(out, Field::mode, "mode", word_of(have.mode), word_of(want.mode));
  compare<std::string>(out, Field::precision, "precision", word_of(have.precision), word_of(want.precision));
  if (want.steps > have.steps) compare(out, Field::steps, "steps", have.steps, want.steps);
  if (want.mode == Mode::inference) return out;
  compare_optimizers(out, have.optimizer, want.optimizer);
  compare(out, Field::accumulate, "accumulate", have.accumulate, want.accumulate);
  compare(out, Field::clip_grad_norm, "clip", have.clip_grad_norm, want.clip_grad_norm);
  compare<std::string>(out, Field::zero_grad, "zero_grad", word_of(have.zero_grad), word_of(want.zero_grad));
  compare<std::string>(out, Field::loss, "loss", word_of(have.loss), word_of(want.loss));
  return out;
}

/// What changes the program itself, so that the program with it has to run to be known.
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

std::string recorded_setups(const Recording& recording) {
  std::string out;
  for (const Run& run : recording.runs) {
    const TrainingSetup& s = run.setup;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", word_of(s.mode), word_of(s.precision));
    if (s.mode == Mode::training) out += fmt::format(" {}", word_of(s.optimizer.kind));
  }
  return out;
}

}  // namespace

TrainingSetup read_setup(const json& j, const std::string& where) {
  TrainingSetup s;
  const auto word = [&](const char* key, auto& into, auto choices) {
    const auto& text = j.at(key).get_ref<const std::string&>();
    for (const auto value : choices)
      if (text == word_of(value)) {
        into = value;
        return;
      }
    fail_input(fmt::format("the recording was made with {} '{}', which this memplan does not know", key, text), where,
               "use a newer memplan");
  };
  word("mode", s.mode, all_modes);
  word("precision", s.precision, all_precisions);
  word("optimizer", s.optimizer.kind, all_optimizers);
  word("impl", s.optimizer.impl, all_impls);
  word("zero_grad", s.zero_grad, all_zero_grads);
  word("loss", s.loss, all_losses);
  s.optimizer.momentum = j.at("momentum").get<double>();
  s.optimizer.weight_decay = j.at("weight_decay").get<double>();
  s.optimizer.nesterov = j.at("nesterov").get<bool>();
  s.optimizer.amsgrad = j.at("amsgrad").get<bool>();
  s.accumulate = j.at("accumulate").get<std::int64_t>();
  s.clip_grad_norm = j.at("clip").get<bool>();
  s.steps = j.at("steps").get<std::int64_t>();
  return s;
}

std::size_t run_of(const Recording& recording, const TrainingSetup& setup) {
  if (const std::string what = beyond_recording(setup); !what.empty())
    fail(ErrorKind::usage, fmt::format("a recording does not tell what {} would change", what), what,
         "change the module or the program itself and record it again with memplan.export");
  std::vector<Difference> fewest;
  for (std::size_t i = 0; i < recording.runs.size(); ++i) {
    std::vector<Difference> found = differences(recording.runs[i].setup, setup);
    if (found.empty()) return i;
    if (i == 0 || found.size() < fewest.size()) fewest = std::move(found);
  }
  std::string asked, remedy = fmt::format("mode=\"{}\"", word_of(setup.mode));
  for (const Difference& d : fewest) asked += (asked.empty() ? "" : " ") + d.asked;
  // The dictionary is complete: what the nearest run has besides its defaults is said as well.
  TrainingSetup plain;
  plain.mode = setup.mode;
  for (const Difference& d : differences(plain, setup)) remedy += ", " + d.remedy;
  fail(ErrorKind::usage, fmt::format("the recording has no run with {}; it has {}", asked, recorded_setups(recording)),
       fewest.empty() ? std::string() : fewest.front().asked.substr(0, fewest.front().asked.find(' ')),
       fmt::format("record it: memplan.export(…, setups=[dict({})])", remedy));
}

}  // namespace memplan::recording
