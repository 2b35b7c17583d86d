// A setup in the words of a training framework, ready to paste: one file each, settings_<framework>.cpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/program/parts.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/setup/setup.h"

namespace memplan::cli {

/// `framework` is a value of --for. What the framework cannot be told is said in a comment.
std::string framework_settings(const TrainingSetup& setup, const ModelParts& parts, const std::string& framework);

/// What the framework has no setting for, one phrase each; a search for it stays clear of these. Of PyTorch itself
/// nothing: what is pasted is a program.
std::vector<std::string> unsaid_in(const std::string& framework, const TrainingSetup& setup);
std::vector<std::string> unsaid_in_hf(const TrainingSetup& setup);
std::vector<std::string> unsaid_in_accelerate(const TrainingSetup& setup);
std::vector<std::string> unsaid_in_deepspeed(const TrainingSetup& setup);
std::vector<std::string> unsaid_in_megatron(const TrainingSetup& setup);
std::vector<std::string> unsaid_in_torchtitan(const TrainingSetup& setup);
std::vector<std::string> unsaid_in_lightning(const TrainingSetup& setup);

std::string pytorch_settings(const TrainingSetup& setup, const ModelParts& parts);
std::string hf_settings(const TrainingSetup& setup, const ModelParts& parts);
std::string accelerate_settings(const TrainingSetup& setup, const ModelParts& parts);
std::string deepspeed_settings(const TrainingSetup& setup, const ModelParts& parts);
std::string megatron_settings(const TrainingSetup& setup, const ModelParts& parts);
std::string torchtitan_settings(const TrainingSetup& setup, const ModelParts& parts);
std::string lightning_settings(const TrainingSetup& setup, const ModelParts& parts);

// What several of them need.
bool is_pure(Precision precision);  ///< weights themselves in 16 bit
bool is_bf16(Precision precision);
bool checkpoints(const TrainingSetup& setup);
/// Variables that PyTorch reads when its process begins, and their values.
std::vector<std::pair<std::string, std::string>> process_variables(const TrainingSetup& setup);
/// The same as lines of a shell.
std::string shell_lines(const TrainingSetup& setup);
/// The changes of the model itself: 16-bit weights, frozen parameters, adapters, attention, checkpointing.
std::string model_lines(const TrainingSetup& setup, const ModelParts& parts);
/// torch.compile around the model, and its activation budget before that; the budget alone for programs that compile
/// by a setting of their own.
std::string compile_lines(const TrainingSetup& setup);
std::string budget_line(const TrainingSetup& setup);
/// "# …" for each part of the setup that `framework` has no setting for, out of `left`.
std::string not_said(const std::vector<std::string>& left, const std::string& framework);
/// How the process group's ranks are started: "torchrun --nproc-per-node=8 train.py".
std::string launch_line(const ParallelSetup& setup);

}  // namespace memplan::cli
