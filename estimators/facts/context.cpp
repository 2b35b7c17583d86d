#include "estimators/facts/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "estimators/base/error.h"
#include "estimators/facts/cards.h"
#include "estimators/facts/csv.h"

namespace memplan {

namespace embedded {
std::string_view context_rows_csv();
}

namespace {

struct PublishedRun {
  std::string card;
  int sm = 0;
  std::int64_t threads = 0;  ///< that can be resident
  Bytes outside;             ///< PyTorch's segments
};

std::vector<PublishedRun> read_runs() {
  std::vector<PublishedRun> runs;
  for (const CsvRow& row : read_csv(embedded::context_rows_csv())) {
    if (row.at("used") != "yes") continue;
    const int sm = std::stoi(row.at("sm"));
    runs.push_back({row.at("card"), sm, std::stoll(row.at("multiprocessors")) * threads_per_multiprocessor(sm),
                    Bytes::mib(std::stoll(row.at("outside_MiB")))});
  }
  if (runs.empty()) fail(ErrorKind::internal, "data/context/rows.csv has no row that serves");
  return runs;
}

using Runs = std::vector<const PublishedRun*>;

template <class Accept>
Runs those(const std::vector<PublishedRun>& runs, Accept accept) {
  Runs out;
  for (const PublishedRun& r : runs)
    if (accept(r)) out.push_back(&r);
  return out;
}

/// As many of them as make a range.
bool enough(const Runs& runs) { return runs.size() >= 3; }

/// What each run would have taken with so many threads, in ascending order.
std::vector<Bytes> scaled(const Runs& runs, std::int64_t threads) {
  std::vector<Bytes> out;
  for (const PublishedRun* r : runs) out.emplace_back(r->outside.count * threads / r->threads);
  std::sort(out.begin(), out.end());
  return out;
}

Bytes median(const std::vector<Bytes>& sorted) {
  const std::size_t n = sorted.size();
  return Bytes((sorted[(n - 1) / 2].count + sorted[n / 2].count) / 2);
}

}  // namespace

ContextFigure published_context(const Device& device) {
  static const std::vector<PublishedRun> published = read_runs();
  const Runs all = those(published, [](const PublishedRun&) { return true; });
  const Runs own = those(published, [&](const PublishedRun& r) { return r.card == device.key; });
  const Runs alike = those(published, [&](const PublishedRun& r) { return r.sm == device.sm(); });
  const std::int64_t threads = std::int64_t{device.multiprocessors} * device.threads_per_multiprocessor;
  const Runs& nearest = enough(own) ? own : enough(alike) ? alike : all;
  // Few runs of one kind vary less than the next one will: left out in turn, each of the 37 lies within what the rest
  // of its compute capability says in 27 cases, within what all the rest say in 33.
  const std::vector<Bytes> figures = scaled(all, threads);
  const std::size_t beyond = figures.size() / 20;  // of twenty, one at either end
  ContextFigure f{median(scaled(nearest, threads)), figures[beyond], figures[figures.size() - 1 - beyond], {}};
  for (const PublishedRun* r : own) {
    f.least = std::min(f.least, r->outside);
    f.most = std::max(f.most, r->outside);
  }
  f.source = fmt::format(
      "{} to {} by {} published runs, scaled by resident threads; {}", to_human(f.least), to_human(f.most), all.size(),
      enough(own) ? fmt::format("median of {} on this card", own.size())
      : enough(alike)
          ? fmt::format("median of {} on compute capability {}.{}", alike.size(), device.sm_major, device.sm_minor)
          : std::string("median of all"));
  return f;
}

}  // namespace memplan
