// The model of the caching allocator against PyTorch's own: recorded programs of 10,000 requests and frees under nine
// settings, with three streams, caches emptied, retries and failures (data/traces, tools/allocator_traces/record.py).
#include <doctest/doctest.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "estimators/runtime/torch/allocator/caching_allocator.h"
#include "estimators/runtime/torch/profile/profile.h"

using namespace memplan;

namespace {

std::int64_t integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  REQUIRE(error == std::errc());
  REQUIRE(end == text.data() + text.size());
  return value;
}

/// The keys of PYTORCH_ALLOC_CONF that the traces use.
AllocatorSetup setup_of(std::string conf) {
  AllocatorSetup setup;
  if (const auto list = conf.find('['); list != conf.npos) {
    // "[1:8,8:4,64:2,>:1]": key k in MiB sets the entry of its power of two and those up to the next key.
    std::istringstream in(conf.substr(list + 1, conf.find(']') - list - 1));
    setup.roundup_power2_divisions.assign(16, 0);
    std::string item;
    std::size_t last = 0;
    bool first = true;
    while (std::getline(in, item, ',')) {
      const std::int64_t value = integer(std::string_view(item).substr(item.find(':') + 1));
      if (item[0] == '>') {
        for (std::size_t i = last + 1; i < 16; ++i) setup.roundup_power2_divisions[i] = value;
        continue;
      }
      std::size_t index = 0;
      for (std::int64_t key = integer(item.substr(0, item.find(':'))); key > 1; key >>= 1) ++index;
      for (std::size_t i = first ? 0 : index; i <= index; ++i) setup.roundup_power2_divisions[i] = value;
      last = index;
      first = false;
    }
    return setup;
  }
  std::istringstream in(conf);
  std::string item;
  while (std::getline(in, item, ',')) {
    const std::string key = item.substr(0, item.find(':')), value = item.substr(item.find(':') + 1);
    if (key == "expandable_segments")
      setup.expandable_segments = value == "True";
    else if (key == "max_split_size_mb")
      setup.max_split_size = Bytes::mib(integer(value));
    else if (key == "max_non_split_rounding_mb")
      setup.max_non_split_rounding = Bytes::mib(integer(value));
    else if (key == "roundup_power2_divisions")
      setup.roundup_power2_divisions.assign(16, integer(value));
    else if (key == "garbage_collection_threshold")
      setup.garbage_collection_threshold = std::stod(value);
    else if (key == "per_process_memory_fraction")
      setup.memory_fraction = std::stod(value);
    else
      FAIL("unknown key ", key);
  }
  return setup;
}

struct Checkpoint {
  std::int64_t requested, allocated, active, reserved, segments, pieces, piece_bytes, retries, failures, addresses;
  bool operator==(const Checkpoint&) const = default;
};

std::string text_of(const Checkpoint& c) {
  std::ostringstream out;
  out << "requested " << c.requested << " allocated " << c.allocated << " active " << c.active << " reserved "
      << c.reserved << " segments " << c.segments << " pieces " << c.pieces << " of " << c.piece_bytes << " retries "
      << c.retries << " failures " << c.failures << " addresses " << c.addresses;
  return out.str();
}

class Replayed {
 public:
  explicit Replayed(CachingAllocator allocator) : allocator_(std::move(allocator)) {}

  /// Whether the request came out as in PyTorch.
  bool step(std::string_view word, const std::vector<std::int64_t>& sizes) {
    if (word == "x") {
      allocator_.empty_cache();
      return true;
    }
    if (word[0] == '-') {
      const auto n = static_cast<std::size_t>(integer(word.substr(1)));
      allocator_.free(blocks_.at(n));
      blocks_[n] = no_block;
      return true;
    }
    const bool fails = word[0] == '!';
    if (fails) word.remove_prefix(1);
    std::int32_t stream = 0;
    if (const auto at = word.find('@'); at != word.npos) {
      stream = static_cast<std::int32_t>(integer(word.substr(at + 1)));
      word = word.substr(0, at);
    }
    const std::int64_t bytes =
        word[0] == '=' ? integer(word.substr(1)) : sizes.at(static_cast<std::size_t>(integer(word)));
    const BlockId block = allocator_.malloc(bytes, stream);
    if (block != no_block) {
      if (blocks_.empty()) first_ = allocator_.address(block);
      blocks_.push_back(block);
    }
    return (block == no_block) == fails;
  }

  Checkpoint now() const {
    const AllocatorStats& s = allocator_.stats();
    std::uint64_t sum = 0;
    for (std::size_t n = 0; n < blocks_.size(); ++n)
      if (blocks_[n] != no_block) {
        const auto distance = static_cast<std::int64_t>(allocator_.address(blocks_[n]) - first_) / 512;
        sum += static_cast<std::uint64_t>(n + 1) * static_cast<std::uint64_t>(distance);
      }
    return {s.all.requested_bytes.current,
            s.all.allocated_bytes.current,
            s.all.active_bytes.current,
            s.all.reserved_bytes.current,
            s.all.segment.current,
            s.all.inactive_split.current,
            s.all.inactive_split_bytes.current,
            s.num_alloc_retries,
            s.num_ooms,
            static_cast<std::int64_t>(sum & ((1ull << 40) - 1))};
  }

 private:
  CachingAllocator allocator_;
  std::vector<BlockId> blocks_;
  std::uint64_t first_ = 0;
};

/// Replays one file up to its first difference; returns the number of checkpoints that agree.
int agreeing_checkpoints(const std::filesystem::path& path) {
  std::ifstream in(path);
  REQUIRE(in.good());
  std::string line, conf;
  std::int64_t total = 0;
  std::vector<std::int64_t> sizes;
  std::optional<Replayed> replayed;
  int checkpoints = 0, number = 0;
  while (std::getline(in, line)) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "conf") {
      words >> conf;
    } else if (word == "total") {
      words >> total;
    } else if (word == "sizes") {
      for (std::int64_t size = 0; words >> size;) sizes.push_back(size);
      replayed.emplace(
          CachingAllocator(setup_of(conf), profile_named("2.11").allocator, DeviceMemory(Bytes(total), Bytes(0))));
    } else if (word == "at") {
      Checkpoint want{};
      words >> want.requested >> want.allocated >> want.active >> want.reserved >> want.segments >> want.pieces >>
          want.piece_bytes >> want.retries >> want.failures >> want.addresses;
      const Checkpoint have = replayed->now();
      if (!(have == want)) {
        FAIL_CHECK(path.filename().string(), " line ", number, "\n PyTorch: ", text_of(want),
                   "\n memplan: ", text_of(have));
        return checkpoints;
      }
      ++checkpoints;
    } else {
      int position = 0;
      do {
        ++position;
        if (!replayed->step(word, sizes)) {
          FAIL_CHECK(path.filename().string(), " line ", number, " word ", position, " '", word,
                     "': one of the two ran out of memory");
          return checkpoints;
        }
      } while (words >> word);
    }
  }
  return checkpoints;
}

}  // namespace

TEST_CASE("PyTorch's allocator and ours agree on recorded programs, addresses included") {
  int traces = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(MEMPLAN_SOURCE_DIR) / "data" / "traces")) {
    if (entry.path().extension() != ".txt") continue;
    ++traces;
    CAPTURE(entry.path().filename().string());
    CHECK(agreeing_checkpoints(entry.path()) == 40);
  }
  CHECK(traces >= 14);
}
