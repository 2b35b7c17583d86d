// A setup in the words of a training framework, ready to paste.
#pragma once

#include <string>

#include "estimators/estimate/setup.h"

namespace memplan::cli {

/// `framework` is a value of --for. What the framework cannot be told is said in a comment.
std::string framework_settings(const TrainingSetup& setup, const std::string& framework);

}  // namespace memplan::cli
