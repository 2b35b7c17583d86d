#include "cli/observe/recording.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/terminal/output.h"
#include "estimators/base/error.h"
#include "estimators/base/text_file.h"

namespace memplan::cli {

namespace {

namespace fs = std::filesystem;

/// The one file of `folder` whose name begins and ends so.
fs::path only_one(const fs::path& folder, std::string_view begin, std::string_view end) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(begin) && name.ends_with(end)) found.push_back(entry.path());
  }
  if (found.size() > 1)
    fail_input(fmt::format("{} processes of the script used a GPU, and a recording is of one", found.size()), {},
               "run one of them alone, or observe them without --record");
  if (found.empty())
    fail_input("the steps of the script were not recorded: its process ended before it could write them", {},
               "let it end by itself, or end it with --stop-after 3");
  return found.front();
}

std::string text_of(const fs::path& path) { return text_of_file(path.string(), ErrorKind::input); }

}  // namespace

void keep_record(const fs::path& folder, const fs::path& to) {
  fs::rename(only_one(folder, "recording-", ".json"), to);
}

std::string keep_recording(const fs::path& folder, const std::string& path) {
  write_out(text_of(only_one(folder, "recording-", ".memplan")), path);
  const auto j = nlohmann::json::parse(text_of(only_one(folder, "recording-", ".json")));
  const std::string why = j.at("why").get<std::string>();
  const auto steps = j.at("setup").at("steps").get<std::int64_t>();
  std::string line = fmt::format("memplan: recorded {} step{}: memplan {}", steps, steps == 1 ? "" : "s", path);
  if (!why.empty())
    line += fmt::format("\nmemplan: it answers what ran and nothing else, since of this script there are no calls: {}",
                        why);
  return line;
}

}  // namespace memplan::cli
