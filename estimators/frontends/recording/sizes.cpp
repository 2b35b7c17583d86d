#include "estimators/frontends/recording/sizes.h"

#include <fmt/format.h>

#include <algorithm>

#include "estimators/base/error.h"
#include "estimators/setup/field.h"

namespace memplan::recording {

namespace {

using Wide = __int128;

/// The value at `batch` of the line through two recorded sizes, rounded up; `whole` says whether it is a whole number.
Wide on_line(const Program& p, std::size_t a, std::size_t b, std::size_t allocation, std::int64_t batch, bool& whole) {
  const Wide width = p.batches[b] - p.batches[a];
  const Wide rise = Wide(p.sizes[b][allocation] - p.sizes[a][allocation]) * (batch - p.batches[a]);
  whole = rise % width == 0;
  return p.sizes[a][allocation] + (rise > 0 ? (rise + width - 1) / width : rise / width);
}

bool on_one_line(const Program& p, std::size_t allocation) {
  bool whole = true;
  for (std::size_t k = 2; k < p.batches.size(); ++k)
    if (on_line(p, 0, 1, allocation, p.batches[k], whole) != p.sizes[k][allocation] || !whole) return false;
  return true;
}

/// The largest distance of a recorded size from the line through the first and the last one.
std::int64_t bend(const Program& p, std::size_t allocation) {
  Wide most = 0;
  bool whole = true;
  for (std::size_t k = 0; k < p.batches.size(); ++k) {
    const Wide off =
        on_line(p, 0, p.batches.size() - 1, allocation, p.batches[k], whole) - Wide(p.sizes[k][allocation]);
    most = std::max(most, off < 0 ? -off : off);
  }
  return static_cast<std::int64_t>(most);
}

/// What the bent allocations that are alive together may add up to.
std::int64_t most_together(const Program& p, const std::vector<std::int64_t>& off) {
  std::int64_t now = 0, most = 0;
  for (const std::int32_t e : p.events) {
    const std::int64_t by = off[static_cast<std::size_t>(e > 0 ? e : -e) - 1];
    now += e > 0 ? by : -by;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace

BatchSizes sizes_at(const Program& p, std::int64_t batch) {
  BatchSizes out;
  const auto known = std::find(p.batches.begin(), p.batches.end(), batch);
  if (known != p.batches.end()) {
    out.bytes = p.sizes[static_cast<std::size_t>(known - p.batches.begin())];
    return out;
  }
  if (p.batches.size() < 3) fail(ErrorKind::internal, "a line needs two recorded batches and one to check it");
  const std::size_t count = p.sizes.front().size(), last = p.batches.size() - 1;
  const auto above =
      static_cast<std::size_t>(std::upper_bound(p.batches.begin(), p.batches.end(), batch) - p.batches.begin());
  const std::size_t right = std::clamp<std::size_t>(above, 1, last);
  std::vector<std::int64_t> off(count, 0);
  out.bytes.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const bool line = on_one_line(p, i);
    bool whole = true;
    Wide size = line ? on_line(p, 0, 1, i, batch, whole) : on_line(p, right - 1, right, i, batch, whole);
    if (!line || !whole) {
      ++out.open;
      const std::int64_t scale = batch / p.batches[last] + 1;
      off[i] = std::min<std::int64_t>(bend(p, i), (std::int64_t{1} << 50)) * std::min<std::int64_t>(scale, 1024);
    }
    // What is asked for at every recorded batch always has a byte.
    bool absent = false;
    for (const auto& recorded : p.sizes) absent = absent || recorded[i] == 0;
    size = std::max<Wide>(size, absent ? 0 : 1);
    if (size > (Wide{1} << 52))
      fail_input(fmt::format("at batch {} an allocation would take more than 4 PiB", batch), setting(Field::batch),
                 "choose a smaller batch");
    out.bytes.push_back(static_cast<std::int64_t>(size));
  }
  out.most = std::min<std::int64_t>(most_together(p, off), std::int64_t{1} << 52);
  return out;
}

}  // namespace memplan::recording
