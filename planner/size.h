// "How large?" The other way round: the largest batch and sequence of a card, the cards that are large enough.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/search.h"

namespace memplan {

struct LargestSequence {
  std::int64_t length = 0;  ///< 0: not even one token fits
  Bytes peak;               ///< process bytes there; of length 1 when none fits
  std::int64_t table = 0;   ///< length of the model's table of positions, where it ends; 0: it has none
  bool at_table = false;    ///< the table ends there, not the memory
  bool at_least = false;    ///< the search stopped at its upper end, 2^22
};

/// The largest length of the open sequence dimension with the verdict `fits`. None when the file has no such dimension.
std::optional<LargestSequence> largest_sequence(const Model& model, const TrainingSetup& setup, const Device& device,
                                                const MarginOf& margin);

/// Price per hour of a card, in any one currency.
using Prices = std::map<std::string, double>;

/// "key,price" lines; lines that begin with # and a heading are skipped. Failure(usage) names the line that is wrong.
Prices read_prices(const std::string& path);

struct PricedCard {
  Card card;
  std::optional<double> price;
};

/// All cards of the device table with the verdict `fits`, each estimated: those with a price first and by price, the
/// others by size.
std::vector<PricedCard> cards_that_fit(const Tape& tape, const TrainingSetup& setup, const MarginOf& margin,
                                       const Estimate& known, const Prices& prices, std::size_t most);

}  // namespace memplan
