#include "cli/calibration/measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "cli/terminal/style.h"
#include "estimators/base/error.h"
#include "estimators/facts/cards.h"

namespace memplan::cli {

namespace {

std::string to_word(const std::string& name) {
  std::string word;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!word.empty() && word.back() != '-')
      word += '-';
  while (!word.empty() && word.back() == '-') word.pop_back();
  return word.substr(0, 80);
}

void measure_into(DeviceChoice& choice, const CardProfile& p) {
  Device& d = choice.device;
  const std::string when = fmt::format("measured here on {}{}", p.date, p.real() ? "" : " on an emulated card");
  d.sm_major = p.sm / 10;
  d.sm_minor = p.sm % 10;
  d.multiprocessors = p.multiprocessors;
  d.threads_per_multiprocessor = p.threads_per_multiprocessor;
  d.total = p.total;
  d.total_is_bound = false;
  d.source = fmt::format("{}, driver {}", when, p.driver);
  d.context = p.usual;
  d.context_below = p.usual - p.least;
  d.context_above = p.most - p.usual;
  d.context_measured = true;
  d.context_source = fmt::format("{}, driver {}, PyTorch {}, CUDA {}; {} once a step has run, {} with every library",
                                 when, p.driver, p.torch, p.cuda, to_human(p.least), to_human(p.most));
  choice.explanation = fmt::format("{} ({}) -> {:.2f} GiB, {}", d.key, d.name,
                                   static_cast<double>(d.total.count) / static_cast<double>(Bytes::gib(1).count), when);
}

/// A class (80GB) and a size (79GiB) name no card; "a6000+ecc" is one in another state than the profile's perhaps.
bool names_card(const DeviceChoice& choice) {
  return card_of(choice.device) == choice.device.key &&
         choose_device(choice.device.key).explanation == choice.explanation;
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return !path.empty() && std::filesystem::exists(path, ignored);
}

/// Of a card that the table does not have: rates and kernels are those that a size alone is given.
std::optional<DeviceChoice> of_profile_alone(const std::string& text) {
  if (!is_card_word(text) || !is_there(profile_path(text))) return std::nullopt;
  const CardProfile p = read_profile(profile_path(text));
  DeviceChoice choice = choose_device(fmt::format("{}B", p.total.count));
  choice.device.key = p.card;
  choice.device.name = p.name;
  measure_into(choice, p);
  return choice;
}

}  // namespace

DeviceChoice choose_measured(const std::string& text, const std::string& calibration) {
  const bool own = calibration != "auto" && calibration != "none";
  std::optional<DeviceChoice> choice;
  const auto known = catching([&] { return choose_device(text); });
  if (known)
    choice = *known;
  else if (!own && calibration != "none")
    choice = of_profile_alone(text);
  if (!choice) throw Failure(known.error());
  if (calibration == "none" || (!own && !names_card(*choice)) || choice->device.context_measured) return *choice;
  const std::string path = own ? calibration : profile_path(choice->device.key);
  if (!own && !is_there(path)) return *choice;
  const CardProfile p = read_profile(path);
  if (p.card != choice->device.key)
    fail(ErrorKind::usage, fmt::format("the profile is of {}, and {} is estimated", p.card, choice->device.key),
         clean(path), fmt::format("give --gpu {}, or leave --calibration out", p.card));
  measure_into(*choice, p);
  return *choice;
}

std::string card_word(const CardProfile& p) {
  const std::string name = to_word(p.name);
  const Device* best = nullptr;
  std::string bare;
  for (const char c : name)
    if (c != '-') bare += c;
  for (const Device& d : devices()) {
    const std::string family = d.key.substr(0, d.key.find('-'));  // "a100" of a100-80gb
    const std::int64_t apart = std::abs(d.total.count - p.total.count);
    // With ECC a card has 1/16 less; cards of one name that differ in memory differ by a fifth at least.
    if (d.sm() != p.sm || d.multiprocessors != p.multiprocessors || bare.find(family) == std::string::npos ||
        apart > d.total.count / 12)
      continue;
    if (!best || apart < std::abs(best->total.count - p.total.count)) best = &d;
  }
  return best ? best->key : name;
}

}  // namespace memplan::cli
