#include "cli/report/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace memplan::embedded {
std::string_view measured_accuracy_csv();
}

namespace memplan::cli {

namespace {

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// "0.621" of "0.621", "0" of "0.000"
std::string_view plain(std::string_view number) {
  return number.find_first_not_of("0.") == std::string_view::npos ? "0" : number;
}

}  // namespace

std::vector<std::string> accuracy_sentences() {
  static constexpr std::pair<std::string_view, std::string_view> groups[] = {
      {"tuning", "models that the rules were made with"},
      {"held-out", "models that nothing was adjusted for at first"},
      {"strategies", "checkpointing, offload, adapters and other strategies"}};
  std::vector<std::string> out;
  for (const auto& [group, words] : groups) {
    std::string figures;
    std::string_view runs;
    for (const std::string_view line : split(embedded::measured_accuracy_csv(), '\n')) {
      const std::vector<std::string_view> cells = split(line, ',');
      // The last step is the one that training repeats.
      if (cells.size() != 8 || cells[0] != group || cells[2] != "steady") continue;
      figures += fmt::format("{}{}: {} exact, 95 % within {} %, at most {} %", figures.empty() ? "" : "; ", cells[1],
                             cells[6], plain(cells[4]), plain(cells[5]));
      runs = cells[7];
    }
    if (!figures.empty())
      out.push_back(fmt::format("{} recorded runs of {}, peaks against PyTorch's own: {}.", runs, words, figures));
  }
  out.emplace_back(
      "The runs are those of unmodified PyTorch on an emulated GPU: it knows the allocator, autograd and the "
      "optimizers, and not what the driver and libraries take by themselves "
      "(the CUDA context). docs/accuracy.md has every run, and real GPUs.");
  return out;
}

}  // namespace memplan::cli
