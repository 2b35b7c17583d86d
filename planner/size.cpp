#include "planner/size.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "estimators/base/text_file.h"
#include "estimators/graph/dims.h"
#include "estimators/graph/position_table.h"
#include "estimators/setup/field.h"
#include "planner/checkpointing/plan.h"

namespace memplan {

namespace {

constexpr std::int64_t longest = std::int64_t{1} << 22;

}  // namespace

std::optional<LargestSequence> largest_sequence(const Model& model, const TrainingSetup& setup, const Device& device,
                                                const MarginOf& margin) {
  const Graph& graph = model.graphs.front();
  const auto dims = open_dims(graph);
  const auto open = std::find_if(dims.begin(), dims.end(), [](const auto& d) { return d.sequence; });
  if (open == dims.end()) return std::nullopt;
  TrainingSetup s = setup;
  s.dims.erase(open->name);
  LargestSequence out;
  if (const auto table = find_position_table(graph)) out.table = table->length;
  const std::int64_t end = out.table > 0 ? out.table : longest;
  Bytes smallest;
  const auto fits = [&](std::int64_t length) {
    s.sequence = length;
    const Result<Estimate> e = estimate_to_judge(model, s, device, margin(device));
    if (length == 1 && e) smallest = e->peak.process;
    // Sizes that overflow do not fit either.
    if (!e || judge(*e, device, margin(device)).verdict != Verdict::fits) return false;
    if (length > out.length) out.length = length, out.peak = e->peak.process;
    return true;
  };
  std::int64_t good = 0, bad = end + 1;
  // Attention kernels pad to multiples of 8 and more, so memory rises in steps, but it never falls by much: bisection.
  for (std::int64_t length = std::min<std::int64_t>(128, end); good < end;) {
    if (fits(length)) {
      good = length;
      if (length == end) break;
      length = std::min(length * 2, end);
    } else {
      bad = length;
      break;
    }
  }
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  if (out.length == 0) out.peak = smallest;
  out.at_table = out.table > 0 && out.length == out.table;
  out.at_least = out.table == 0 && out.length == longest;
  return out;
}

Prices read_prices(const std::string& path) {
  std::istringstream file(text_of_file(path, ErrorKind::usage, "give a file with lines such as h100-80gb,2.49"));
  Prices prices;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    const std::size_t comma = line.find(',');
    const std::string key = line.substr(0, comma),
                      text = comma == std::string::npos ? ""
                                                        : line.substr(comma + 1, line.find(',', comma + 1) - comma - 1);
    double price = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), price);
    if (error != std::errc() || end != text.data() + text.size() || price < 0) {
      if (number == 1) continue;  // a heading
      fail(ErrorKind::usage, fmt::format("'{}' is no price", text), fmt::format("{}, line {}", path, number),
           "write lines such as h100-80gb,2.49");
    }
    prices[choose_device(key).device.key] = price;
  }
  return prices;
}

std::vector<PricedCard> cards_that_fit(const Tape& tape, const TrainingSetup& setup, const MarginOf& margin,
                                       const Estimate& known, const Prices& prices, std::size_t most) {
  std::vector<PricedCard> out;
  // Without prices the smallest come first, and a few are enough; with them every card that is large enough is looked
  // at.
  const bool bf16 = setup.precision == Precision::bf16 || setup.precision == Precision::amp_bf16;
  const std::size_t wanted = prices.empty() && !bf16 ? most : devices().size();
  for (const Card& card : smallest_cards(tape, setup, margin, known, wanted)) {
    if (bf16 && card.device.sm() < 80) continue;  // no bfloat16 units: it runs, many times slower
    const auto price = prices.find(card.device.key);
    out.push_back({card, price == prices.end() ? std::nullopt : std::optional(price->second)});
  }
  std::stable_sort(out.begin(), out.end(), [](const PricedCard& a, const PricedCard& b) {
    if (a.price.has_value() != b.price.has_value()) return a.price.has_value();
    return a.price && *a.price < *b.price;
  });
  if (out.size() > most) out.resize(most);
  return out;
}

}  // namespace memplan
