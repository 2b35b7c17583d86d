// Models that are no file yet: a configuration of transformers, a name, a function. The user's own Python exports them
// (docs/export.md).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/flags/options.h"
#include "estimators/companion/temporary_folder.h"

namespace memplan::cli {

/// Whether memplan has to export it first: hf:org/name, timm:NAME, torchvision:NAME, train.py:make_model, a folder or
/// config.json of transformers.
bool is_source(const std::string& argument);

/// The file of a model; one that was exported for this run lies in `scratch`, and goes with it.
struct ModelFile {
  std::string path;
  std::unique_ptr<TemporaryFolder> scratch;
  bool exported() const { return scratch != nullptr; }
};

/// `python -m memplan WORDS -- SOURCE` in a process with limits: the path of the file that it says it made, which lies
/// in `folder` or among those kept. Failure with the first cause.
std::string made_by_package(std::vector<std::string> words, const std::string& source, const std::string& folder);

/// The argument itself where it is a file. Else the file that `python -m memplan export` makes of it, in a process
/// with limits; those of configurations and names are kept below ~/.cache/memplan. With the words `recorded`, the file
/// that `python -m memplan record` makes by them. Failure with the first cause.
ModelFile model_file(const std::string& argument, const JobOptions& options, std::vector<std::string> recorded = {});

}  // namespace memplan::cli
