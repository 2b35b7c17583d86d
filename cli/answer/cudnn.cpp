#include "cli/answer/cudnn.h"

#include <fmt/format.h>

#include <map>

#include "cli/terminal/output.h"
#include "estimators/cudnn/installed.h"

namespace memplan::cli {

namespace {

/// By word. What they were told is written to the cache folder when the program ends.
std::map<std::string, std::shared_ptr<InstalledCudnn>>& asked() {
  static std::map<std::string, std::shared_ptr<InstalledCudnn>> all;
  return all;
}

}  // namespace

std::shared_ptr<CudnnLibrary> cudnn_to_ask(const std::string& word) {
  if (word == "none") return nullptr;
  auto& library = asked()[word];
  if (!library) library = std::make_shared<InstalledCudnn>(word == "auto" ? std::string() : word);
  return library;
}

void say_what_cudnn_lacked() {
  for (const auto& [word, library] : asked())
    if (const std::string why = library ? library->complaint() : std::string(); !why.empty())
      tell(fmt::format("memplan: {}\n", why));
}

}  // namespace memplan::cli
