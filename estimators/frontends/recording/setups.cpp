#include "estimators/frontends/recording/setups.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "estimators/base/error.h"
#include "estimators/frontends/recording/names.h"

namespace memplan::recording {

namespace {

using nlohmann::json;

/// A flag that a recording fixes: what was recorded, what is asked for, and how memplan.export says the latter.
struct Difference {
  std::string recorded, asked;  ///< "--precision fp32", "--precision amp-bf16"
  std::string remedy;           ///< "precision=\"amp-bf16\""; empty: not something that can be recorded
};

template <class T>
void compare(std::vector<Difference>& out, const char* flag, const char* key, const T& recorded, const T& asked) {
  if (recorded == asked) return;
  if constexpr (std::is_same_v<T, std::string>)
    out.push_back({fmt::format("--{} {}", flag, recorded), fmt::format("--{} {}", flag, asked),
                   fmt::format("{}=\"{}\"", key, asked)});
  else if constexpr (std::is_same_v<T, bool>)
    out.push_back({fmt::format("no --{}", flag), fmt::format("{}--{}", asked ? "" : "no ", flag),
                   fmt::format("{}={}", key, asked ? "True" : "False")});
  else
    out.push_back({fmt::format("--{} {}", flag, recorded), fmt::format("--{} {}", flag, asked),
                   fmt::format("{}={}", key, asked)});
}

void compare_optimizers(std::vector<Difference>& out, const OptimizerSetup& have, const OptimizerSetup& want) {
  compare<std::string>(out, "optimizer", "optimizer", word_of(have.kind), word_of(want.kind));
  if (have.kind != want.kind || want.kind == OptimizerKind::none) return;
  compare<std::string>(out, "optimizer-impl", "impl", word_of(have.impl), word_of(want.impl));
  // Only whether there is one decides what is allocated.
  compare(out, "momentum", "momentum", have.momentum != 0 ? want.momentum != 0 ? want.momentum : have.momentum : 0.0,
          want.momentum);
  compare(out, "weight-decay", "weight_decay",
          have.weight_decay != 0 ? want.weight_decay != 0 ? want.weight_decay : have.weight_decay : 0.0,
          want.weight_decay);
  compare(out, "nesterov", "nesterov", have.nesterov, want.nesterov);
  compare(out, "amsgrad", "amsgrad", have.amsgrad, want.amsgrad);
}

std::vector<Difference> differences(const TrainingSetup& have, const TrainingSetup& want) {
  std::vector<Difference> out;
  compare<std::string>(out, "mode", "mode", word_of(have.mode), word_of(want.mode));
  compare<std::string>(out, "precision", "precision", word_of(have.precision), word_of(want.precision));
  if (want.steps > have.steps) compare(out, "steps", "steps", have.steps, want.steps);
  if (want.mode == Mode::inference) return out;
  compare_optimizers(out, have.optimizer, want.optimizer);
  compare(out, "accumulate", "accumulate", have.accumulate, want.accumulate);
  compare(out, "clip", "clip", have.clip_grad_norm, want.clip_grad_norm);
  compare<std::string>(out, "zero-grad", "zero_grad", word_of(have.zero_grad), word_of(want.zero_grad));
  compare<std::string>(out, "loss", "loss", word_of(have.loss), word_of(want.loss));
  return out;
}

/// What changes the program itself, so that the program with it has to run to be known.
const char* beyond_recording(const TrainingSetup& s) {
  if (is_parallel(s.parallel)) return "a job on several GPUs";
  if (!s.checkpoint.empty() || s.checkpoint_optimal || !s.checkpoint_save.empty()) return "--checkpoint";
  if (s.offload.any()) return "--offload";
  if (s.lora) return "--lora";
  if (s.kv_cache) return "--kv-cache";
  if (s.fp8 != Fp8::none) return "fp8";
  if (s.channels_last) return "--channels-last";
  if (s.keep_loss_history) return "--loss-history";
  if (s.keep_output) return "--keep-output";
  if (s.empty_cache) return "--empty-cache";
  if (!s.frozen.empty()) return "--freeze";
  if (s.attention != AttentionBackend::automatic) return "--attention";
  return nullptr;
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
  if (const char* what = beyond_recording(setup))
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
