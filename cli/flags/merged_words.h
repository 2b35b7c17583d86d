// Command lines that memplan prints for pasting.
#pragma once

#include <string>
#include <string_view>

namespace memplan::cli {

/// The flags `words` (" --batch 64 --seq 128") with those of `change` put in: a flag given again replaces the earlier
/// one,
/// where --ort is as many flags as it names options; --amp and --precision replace each other, settings of --alloc-conf
/// are joined, and --gpus says all of the parallelism. No leading space.
std::string merged_words(std::string_view words, std::string_view change);

}  // namespace memplan::cli
