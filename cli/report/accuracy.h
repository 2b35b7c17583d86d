// How near the estimates are to PyTorch's own figures: data/measured/accuracy.csv in words.
#pragma once

#include <string>
#include <vector>

namespace memplan::cli {

/// One sentence per group of recorded runs, and one on what the recordings cannot know.
std::vector<std::string> accuracy_sentences();

}  // namespace memplan::cli
