#include "estimators/cudnn/answers.h"

#include <charconv>
#include <filesystem>
#include <fstream>

#include "estimators/companion/surroundings.h"

namespace memplan {

namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t largest_file = std::uintmax_t{16} << 20;
constexpr const char* first_line = "memplan: workspaces of convolutions as cuDNN said them, 1";

}  // namespace

CudnnAnswers::CudnnAnswers(const std::string& name) {
  const std::string folder = cache_folder("cudnn");
  if (folder.empty()) return;
  path_ = folder + "/" + name + ".txt";
  std::error_code none;
  const std::uintmax_t size = fs::file_size(path_, none);
  if (none || size > largest_file) return;
  std::ifstream in(path_);
  std::string line;
  if (!std::getline(in, line) || line != first_line) return;
  while (std::getline(in, line)) {
    const auto equals = line.find('=');
    std::int64_t bytes = 0;
    if (equals == std::string::npos) continue;
    const char* end = line.data() + line.size();
    const auto [stop, error] = std::from_chars(line.data() + equals + 1, end, bytes);
    if (error == std::errc() && stop == end && bytes >= -1) known_.emplace(line.substr(0, equals), bytes);
  }
}

CudnnAnswers::~CudnnAnswers() {
  if (!changed_ || path_.empty()) return;
  std::string text = std::string(first_line) + "\n";
  for (const auto& [question, bytes] : known_) text += question + "=" + std::to_string(bytes) + "\n";
  keep_in_cache(path_, text);
}

std::optional<std::int64_t> CudnnAnswers::find(const std::string& question) const {
  const auto it = known_.find(question);
  return it == known_.end() ? std::nullopt : std::optional(it->second);
}

void CudnnAnswers::keep(const std::string& question, std::int64_t bytes) {
  known_[question] = bytes;
  changed_ = true;
}

}  // namespace memplan
