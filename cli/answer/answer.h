// One answer, computed once; every report format only prints it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/answer/run.h"
#include "cli/flags/options.h"
#include "estimators/base/unwrap.h"
#include "estimators/pipeline.h"
#include "estimators/runtime/ort/node_stats.h"
#include "planner/search.h"

namespace memplan::cli {

struct Input {
  std::string name, dtype;
  std::vector<std::int64_t> sizes;
};

/// The module itself ran on the emulated GPU: whether PyTorch did what the estimate says, event by event.
struct Confirmation {
  bool agrees = false;
  std::string text;  ///< one sentence
};

struct Answer {
  std::string path, format;
  std::string graph_hash;  ///< of parameters, calls and modules
  std::int64_t file_bytes = 0;
  std::vector<BoundDim> dims;
  std::vector<Input> inputs;
  std::string weights;  ///< dtype of most parameters where the setup leaves them as the file has them, not in float32
  TrainingSetup setup;
  DeviceChoice choice;
  bool device_given = false;
  Bytes margin;
  Estimate estimate;
  Judgement judgement;
  std::optional<Alternative> inference;  ///< a forward pass of the same batch
  std::optional<LargestBatch> largest;
  std::vector<Card> cards;
  std::optional<RunRecord> run;  ///< for formats that show the run itself
  std::optional<Confirmation> confirmation;
  std::vector<ort::NodeStats> node_stats;  ///< for the format that shows them
  std::vector<Alternative> changes;        ///< when it does not fit: small changes, each estimated
  int exit_code = 0;
};

/// The model of the options, and the options with the version of PyTorch that suits its file.
struct Job {
  Model model;
  Options options;
};
Job load_job(const Options& options);

/// The model that the options name; one that is no file yet is exported first (python/source.h).
Model model_of(const Options& options);

/// The version that the options ask for, else the one that wrote the model's file.
void choose_torch(Options& options, const Model& model);

/// What the file says of its program and the options leave open: the version of PyTorch, of a script's recording the
/// setup that the script ran, and the modules that the model checkpoints itself.
void take_over(Options& options, const Model& model);

/// Loads, lowers and estimates what the options ask for; `shown` says what is kept of the run itself. Failure with the
/// exit code's kind otherwise.
Answer compute(const Options& options, RunShown shown);
/// The same of a model that is loaded.
Answer compute(const Job& job, RunShown shown);

/// The device of the options with --reserve applied; the H100 80GB when none is named.
DeviceChoice device_of(const Options& options);

}  // namespace memplan::cli
