// How sure a figure is, in a word, and why.
#pragma once

#include <string>

#include "estimators/estimate/estimate.h"

namespace memplan::cli {

struct Certainty {
  std::string word;   ///< "recorded", "exact", "modelled"
  std::string why;    ///< a sentence without a stop
  std::string surer;  ///< what would make it surer; empty where nothing would
};

/// Of what the program asks PyTorch for; what the context adds is a figure of its own.
Certainty certainty_of(const Estimate& estimate);

}  // namespace memplan::cli
