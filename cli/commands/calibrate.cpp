// memplan calibrate: has the user's PyTorch measure this machine's card, and keeps what it says.
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/calibration/measured.h"
#include "cli/commands/commands.h"
#include "cli/python/package.h"
#include "cli/terminal/output.h"
#include "cli/terminal/style.h"
#include "estimators/companion/process.h"
#include "estimators/companion/temporary_folder.h"
#include "estimators/facts/cards.h"

namespace memplan::cli {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::chrono::seconds longest{120};
constexpr std::size_t largest_answer = 1 << 20;

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  gmtime_r(&now, &date);
  return fmt::format("{:04}-{:02}-{:02}", date.tm_year + 1900, date.tm_mon + 1, date.tm_mday);
}

Figures figures_of(const json& rows) {
  Figures out;
  for (const json& row : rows)
    out.emplace_back(row.at("after").get<std::string>(), Bytes(std::max<std::int64_t>(0, row.at("bytes"))));
  return out;
}

CardProfile profile_of_answer(const json& m) {
  CardProfile p;
  p.name = m.at("name");
  p.date = today();
  p.driver = m.at("driver");
  p.torch = m.at("torch");
  p.cuda = m.at("cuda");
  p.cudnn = m.at("cudnn");
  p.nccl = m.at("nccl");
  p.loading = m.at("loading");
  p.platform = m.at("mig").get<bool>() ? "mig" : m.at("platform").get<std::string>();
  p.sm = m.at("capability").at(0).get<int>() * 10 + m.at("capability").at(1).get<int>();
  p.multiprocessors = m.at("multiprocessors");
  p.threads_per_multiprocessor = m.at("threads_per_multiprocessor");
  if (p.threads_per_multiprocessor == 0) p.threads_per_multiprocessor = threads_per_multiprocessor(p.sm);
  const auto bytes = [](const json& value) { return Bytes(value.get<std::int64_t>()); };
  p.total = bytes(m.at("total_bytes"));
  p.smi_total = bytes(m.at("smi_total_bytes"));
  p.free = bytes(m.at("free_bytes"));
  p.least = bytes(m.at("context").at("least"));
  p.usual = bytes(m.at("context").at("usual"));
  p.most = bytes(m.at("context").at("most"));
  p.growth = figures_of(m.at("growth"));
  for (const auto& part : {m.at("allocator"), m.at("workspaces")})
    for (const auto& [name, value] : part.items()) p.asked.emplace_back(name, bytes(value));
  p.card = card_word(p);
  return p;
}

[[noreturn]] void no_answer(const ProcessResult& r) {
  if (r.end == ProcessResult::End::timed_out)
    fail(ErrorKind::usage, fmt::format("the card was not measured within {} s", longest.count()), {},
         "look at it with nvidia-smi; another process may hold it");
  const std::size_t last = r.errors.find_last_not_of('\n');
  const std::string errors = r.errors.substr(0, last == std::string::npos ? 0 : last + 1);
  fail(ErrorKind::usage, clean("PyTorch ended before it said anything: " + errors.substr(errors.rfind('\n') + 1)), {},
       "try python3 -c 'import torch; torch.zeros(1).cuda()'");
}

/// Each line is one thing that was found; what a hanging NCCL cuts off is missing, and no more.
CardProfile measured(std::int64_t device) {
  const TemporaryFolder folder;
  const std::vector<std::string> words{"measure-card", "--device", std::to_string(device)};
  const ProcessResult r =
      run_process(package_command(find_python({"torch"}, "a card is measured by PyTorch"), folder.path(), words), {},
                  package_environment(), {longest, largest_answer});
  std::optional<CardProfile> profile;
  std::size_t at = 0;
  for (std::size_t end; (end = r.output.find('\n', at)) != std::string::npos; at = end + 1) {
    const json line = json::parse(r.output.begin() + static_cast<std::ptrdiff_t>(at),
                                  r.output.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!line.is_object()) continue;  // what a library prints
    try {
      if (line.contains("refused"))
        fail(ErrorKind::usage, clean(line.at("refused").get<std::string>()), {},
             clean(line.at("hint").get<std::string>()));
      if (line.contains("measured")) profile = profile_of_answer(line.at("measured"));
      if (line.contains("nccl") && profile) profile->nccl_growth = figures_of(line.at("nccl"));
    } catch (const json::exception& e) {
      fail(ErrorKind::internal, clean(fmt::format("the answer of the measurement cannot be read: {}", e.what())));
    }
  }
  if (!profile) no_answer(r);
  return *profile;
}

/// A row of data/context/rows.csv, and what else the tables could take of it.
std::string submission(const CardProfile& p) {
  const char* why_not = !p.real()             ? "emulated"
                        : p.platform == "wsl" ? "WSL"
                        : p.platform == "mig" ? "MIG"
                        : p.loading != "LAZY" ? "all kernels were loaded at once"
                                              : "";
  std::string loading = p.loading;
  for (char& c : loading) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  json growth = json::object(), nccl = json::object(), asked = json::object();
  for (const auto& [name, bytes] : p.growth) growth[name] = bytes.count;
  for (const auto& [name, bytes] : p.nccl_growth) nccl[name] = bytes.count;
  for (const auto& [name, bytes] : p.asked) asked[name] = bytes.count;
  const json row = {{"card", p.card},
                    {"name", p.name},
                    {"date", p.date},
                    {"driver", p.driver},
                    {"torch", p.torch},
                    {"cuda", p.cuda},
                    {"cudnn", p.cudnn},
                    {"nccl", p.nccl},
                    {"platform", p.platform},
                    {"total_bytes", p.total.count},
                    {"nvidia_smi_total_bytes", p.smi_total.count},
                    {"outside_bytes", growth},
                    {"nccl_bytes", nccl},
                    {"asked_bytes", asked}};
  return fmt::format(
      "# a line for data/context/rows.csv\n"
      "memplan calibrate,{},{},{},{},calibrate,{},{},{},{},,,,,,{},{},{}\n"
      "# for data/devices/gpus.csv: cuda_total_GiB of {}, and as its source: memplan calibrate {}\n{:.2f}\n"
      "# a line for data/context/calibrations.jsonl\n{}\n",
      p.date, p.card, p.sm, p.multiprocessors, p.torch, p.cuda, loading, p.platform, p.usual.count >> 20,
      *why_not ? "no" : "yes", why_not, p.card, p.date,
      static_cast<double>(p.total.count) / static_cast<double>(Bytes::gib(1).count), row.dump());
}

std::string summary(const CardProfile& p, const std::string& path) {
  return fmt::format(
      "{}  {}, driver {}\n"
      "  total           {} ({} bytes), {} free\n"
      "  CUDA context    {} once a step has run, {} with convolutions and attention, {} with every library\n"
      "  kept in         {}\n"
      "Estimates with --gpu {} take it from now on.\n",
      p.card, clean(p.name), clean(p.driver), to_human(p.total), grouped(p.total.count), to_human(p.free),
      to_human(p.least), to_human(p.usual), to_human(p.most), clean(path), p.card);
}

void keep(const CardProfile& p, const std::string& path) {
  if (path.empty())
    fail(ErrorKind::usage, "there is no folder for the profile: HOME is not set", {},
         fmt::format("set HOME, or give -o {}.toml", p.card));
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error)
    fail_input(fmt::format("the folder of the profile cannot be made: {}", error.message()), clean(folder.string()),
               fmt::format("make it, or give -o {}.toml", p.card));
  write_out(profile_text(p), path);
}

}  // namespace

int run_calibrate(const Options& options) {
  const CardProfile p = measured(options.calibrate.device);
  if (options.calibrate.submit) {
    write_out(submission(p), options.output);
    return 0;
  }
  const std::string path = options.output.empty() ? profile_path(p.card) : options.output;
  keep(p, path);
  write_out(summary(p, path), {});
  return 0;
}

}  // namespace memplan::cli
