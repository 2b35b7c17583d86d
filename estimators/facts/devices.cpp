#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "estimators/base/error.h"
#include "estimators/base/text.h"
#include "estimators/facts/cards.h"
#include "estimators/facts/context.h"
#include "estimators/facts/csv.h"
#include "estimators/facts/device.h"
#include "estimators/facts/rates.h"
#include "estimators/setup/field.h"

namespace memplan {

namespace embedded {
std::string_view devices_gpus_csv();
}

namespace {

struct Card {
  Device device;
  DeviceRates rates;
  std::int64_t label_gb = 0;  ///< the size it is sold under
  Bytes reported;             ///< total of nvidia-smi; 0: none is known
  Ecc ecc = Ecc::fixed;
};

/// GB/s and direction of the generation of PCI Express that the architecture has, x16.
double pcie_of(int sm) { return sm >= 90 ? 63 : sm >= 80 ? 31.5 : 15.75; }

/// Figures of the table; an empty cell is 0. GeForce boards without NVLink carry their own (perhaps x8) PCIe figure.
DeviceRates rates_in(const CsvRow& row, int sm) {
  const auto number = [&](const char* name) {
    const std::string& cell = row.at(name);
    return cell.empty() ? 0.0 : std::stod(cell);
  };
  DeviceRates r;
  r.fp32 = number("fp32_TFLOPS") * 1e12;
  r.tf32 = number("tf32_TFLOPS") * 1e12;
  r.half = number("fp16_dense_TFLOPS") * 1e12;
  r.bf16 = number("bf16_dense_TFLOPS") * 1e12;
  r.fp8 = number("fp8_dense_TFLOPS") * 1e12;
  r.memory = number("hbm_GBps") * 1e9;
  r.link = number("link_GBps") * 1e9;
  r.pcie = std::min(pcie_of(sm) * 1e9, r.link > 0 ? r.link : pcie_of(sm) * 1e9);
  return r;
}

std::vector<Card> read_cards() {
  std::vector<Card> cards;
  for (const CsvRow& row : read_csv(embedded::devices_gpus_csv())) {
    const auto at = [&](const char* name) -> const std::string& { return row.at(name); };
    if (at("key").empty()) continue;  // rows without a key: no CUDA device of its own
    Card card;
    Device& d = card.device;
    d.key = at("key");
    d.name = "NVIDIA " + at("name");
    const int sm = std::stoi(at("arch").substr(at("arch").find("sm_") + 3));
    d.sm_major = sm / 10;
    d.sm_minor = sm % 10;
    d.multiprocessors = std::stoi(at("multiprocessors"));
    d.threads_per_multiprocessor = threads_per_multiprocessor(sm);
    card.label_gb = std::stoll(at("memory_advertised_GB"));
    card.rates = rates_in(row, sm);
    if (!at("memory_total_MiB_reported").empty())
      card.reported = Bytes::mib(std::stoll(at("memory_total_MiB_reported")));
    card.ecc = at("ecc") == "on" ? Ecc::on : at("ecc") == "off" ? Ecc::off : Ecc::fixed;
    if (!at("cuda_total_GiB").empty()) {
      d.total = Bytes(static_cast<std::int64_t>(std::stod(at("cuda_total_GiB")) * (1LL << 30)));
      d.source = "total that CUDA reported in " + at("cuda_total_source");
    } else if (card.reported > Bytes(0)) {
      d.total = card.reported;
      d.total_is_bound = true;  // CUDA reports 0.5 to 3 % less than nvidia-smi: the driver keeps some for itself
      d.source = "total of nvidia-smi: " + at("source");
    } else {
      d.total = Bytes::gib(card.label_gb);
      d.total_is_bound = true;
      d.source = "the label's size: no published total";
    }
    const ContextFigure context = published_context(d);
    d.context = context.usual;
    d.context_below = context.usual - context.least;
    d.context_above = context.most - context.usual;
    d.context_source = context.source;
    cards.push_back(std::move(card));
  }
  return cards;
}

const std::vector<Card>& cards() {
  static const std::vector<Card> all = read_cards();
  return all;
}

std::string letters_and_digits(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::vector<std::string> near_names(const std::string& wanted) {
  std::vector<std::pair<std::size_t, std::string>> scored;
  for (const Card& card : cards()) {
    const std::string key = letters_and_digits(card.device.key);
    const bool contains =
        !wanted.empty() && (key.find(wanted) != std::string::npos || wanted.find(key) != std::string::npos);
    const std::size_t distance = contains ? 0 : edit_distance(wanted, key);
    if (contains || distance <= std::max<std::size_t>(2, wanted.size() / 3))
      scored.emplace_back(distance, card.device.key);
  }
  // A card whose name holds the word is meant rather than one that is spelt alike, and the plainest name first:
  // "h100" is h100-80gb before h100-pcie-80gb, and no a10.
  if (std::any_of(scored.begin(), scored.end(), [](const auto& s) { return s.first == 0; }))
    std::erase_if(scored, [](const auto& s) { return s.first != 0; });
  std::stable_sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.first == 0 && a.second.size() < b.second.size();
  });
  std::vector<std::string> names;
  for (const auto& [distance, key] : scored)
    if (names.size() < 6) names.push_back(key);
  return names;
}

struct Amount {
  double number;
  std::string unit;  ///< as written
};

std::optional<Amount> amount_of(std::string_view text) {
  Amount amount{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount.number);
  if (error != std::errc() || !std::isfinite(amount.number) || amount.number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  amount.unit = text;
  return amount;
}

std::string gib(Bytes size) { return fmt::format("{:.2f} GiB", static_cast<double>(size.count) / (1LL << 30)); }

std::string what_the_total_is(const Device& device) {
  return device.total_is_bound ? ", an upper bound: no total that CUDA reported is known for it" : "";
}

DeviceChoice of_card(const Device& d) {
  return {d, fmt::format("{} ({}) -> {}{}", d.key, d.name, gib(d.total), what_the_total_is(d))};
}

/// "a6000+ecc", "a40+noecc": the card with its ECC switched.
DeviceChoice switched(const Card& card, std::string_view state) {
  if (state != "ecc" && state != "noecc")
    fail(ErrorKind::usage, fmt::format("'{}' is no state of a card", state.substr(0, 40)), setting(Field::device),
         fmt::format("write {}+ecc or {}+noecc", card.device.key, card.device.key));
  if (card.ecc == Ecc::fixed)
    fail(ErrorKind::usage,
         fmt::format("ECC takes nothing of {} that is known: it has none, it cannot be switched off, or its memory has "
                     "room for it besides",
                     card.device.key),
         setting(Field::device),
         fmt::format("use {}, or give the total that nvidia-smi shows as a size",
                     setting(Field::device, card.device.key)));
  Device d = card.device;
  d.key += fmt::format("+{}", state);
  d.name += state == "ecc" ? " with ECC" : " without ECC";
  if ((state == "ecc") != (card.ecc == Ecc::on)) {
    d.total = state == "ecc" ? with_ecc(card.reported) : without_ecc(card.reported);
    d.total_is_bound = true;
    d.source = fmt::format("total of nvidia-smi with ECC {}, {} MiB; ECC takes 1/16",
                           card.ecc == Ecc::on ? "on" : "off", card.reported.count >> 20);
  }
  return of_card(d);
}

/// "80" is 80 bytes to the letter, "4090" a card's name without its family: nobody means bytes by so small a number.
void refuse_bare_number(double number, std::string_view text) {
  if (number >= 256.0 * (1 << 20)) return;
  const std::vector<std::string> near = near_names(letters_and_digits(text));
  std::string hint = number >= 1 && number <= 1024 ? fmt::format("did you mean {}GB?", text) : std::string();
  if (!near.empty())
    hint +=
        fmt::format("{}{} {}?", hint.empty() ? "" : " ", hint.empty() ? "did you mean" : "Or", fmt::join(near, ", "));
  fail(ErrorKind::usage, fmt::format("'{}' would be {} bytes of GPU memory", text, text), setting(Field::device),
       hint.empty() ? "give a size with its unit (80GB, 79GiB) or a card (memplan devices lists them)" : hint);
}

DeviceChoice of_size(double bytes, std::string_view text) {
  // Beyond 2^50 no device exists and a double stops being exact enough to be turned into bytes.
  if (!(bytes >= 1) || bytes > static_cast<double>(1LL << 50))
    fail(ErrorKind::usage, fmt::format("'{}' is no size that a GPU can have", text), setting(Field::device),
         "for example 80GB, 79GiB or h100-80gb");
  DeviceChoice choice;
  for (const Card& card : cards())
    if (card.device.key == "h100-80gb") choice.device = card.device;
  const std::string like = choice.device.key;
  choice.device.key = std::string(text);
  choice.device.total = Bytes(static_cast<std::int64_t>(bytes));
  choice.device.name = fmt::format("a device of {}, otherwise like {}", gib(choice.device.total), like);
  choice.device.source = "given";
  choice.device.total_is_bound = false;
  choice.explanation =
      fmt::format("{} of memory as given, kernels and libraries as on {}", gib(choice.device.total), like);
  return choice;
}

}  // namespace

const std::vector<Device>& devices() {
  static const std::vector<Device> all = [] {
    std::vector<Device> out;
    for (const Card& card : cards()) out.push_back(card.device);
    return out;
  }();
  return all;
}

// CUDA C++ programming guide, "Technical specifications per compute capability".
int threads_per_multiprocessor(int sm) {
  switch (sm) {
    case 75:
      return 1024;
    case 86:
    case 87:
    case 89:
    case 120:
      return 1536;
    default:
      return 2048;
  }
}

Bytes with_ecc(Bytes full) { return Bytes::mib((full.count / 16 * 15) >> 20); }

Bytes without_ecc(Bytes rest) { return Bytes::mib((rest.count / 15 * 16 + (1 << 20) - 1) >> 20); }

std::string card_of(const Device& device) {
  const std::string key = device.key.substr(0, device.key.find('+'));
  return std::any_of(cards().begin(), cards().end(), [&](const Card& c) { return c.device.key == key; })
             ? key
             : std::string();
}

DeviceRates rates_of(const Device& device) {
  const Card* like = nullptr;
  const std::string key = card_of(device);
  for (const Card& card : cards()) {
    if (card.device.key == key) return card.rates;
    if (card.device.key == "h100-80gb") like = &card;
  }
  return like ? like->rates : DeviceRates{};
}

void set_context(Device& device, Bytes context, std::string source) {
  device.context = context;
  device.context_below = device.context_above = Bytes();
  device.context_measured = false;
  device.context_source = std::move(source);
}

DeviceChoice choose_device(std::string_view text) {
  const std::size_t plus = text.find('+');
  const std::string wanted = letters_and_digits(text.substr(0, plus));
  for (const Card& card : cards()) {
    if (letters_and_digits(card.device.key) != wanted && letters_and_digits(card.device.name) != wanted) continue;
    return plus == std::string_view::npos ? of_card(card.device) : switched(card, text.substr(plus + 1));
  }
  if (const auto amount = amount_of(text)) {
    static const std::map<std::string, double> units = {
        {"", 1.0},   {"b", 1.0},  {"kib", 1024.0}, {"mib", 1048576.0}, {"gib", 1073741824.0}, {"tib", 1099511627776.0},
        {"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9},     {"tb", 1e12}};
    const std::string unit = letters_and_digits(amount->unit);
    if (unit == "gb" || unit == "g") {
      const Card* smallest = nullptr;
      int sold = 0;
      for (const Card& card : cards()) {
        if (static_cast<double>(card.label_gb) != amount->number) continue;
        ++sold;
        if (!smallest || card.device.total < smallest->device.total) smallest = &card;
      }
      if (smallest)
        return {smallest->device, fmt::format("{}GB class -> {} ({}, the smallest of {} cards sold as {} GB{})",
                                              smallest->label_gb, gib(smallest->device.total), smallest->device.key,
                                              sold, smallest->label_gb, what_the_total_is(smallest->device))};
    }
    if (unit.empty()) refuse_bare_number(amount->number, text);
    if (const auto it = units.find(unit); it != units.end()) return of_size(amount->number * it->second, text);
  }
  const auto near = wanted.empty() ? std::vector<std::string>() : near_names(wanted);
  fail(ErrorKind::usage, fmt::format("unknown GPU '{}'", text), setting(Field::device),
       near.empty() ? std::string("memplan devices lists the cards; a size (80GB, 79GiB) works too")
                    : fmt::format("did you mean {}? A size (80GB, 79GiB) works too", fmt::join(near, ", ")));
}

}  // namespace memplan
