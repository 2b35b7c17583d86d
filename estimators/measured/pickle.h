// Pickles that hold plain data, read without executing anything: no object is ever built by name, so a file that asks
// for one is refused. Enough for what torch.cuda.memory._dump_snapshot writes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace memplan {

struct PickleLimits {
  std::size_t values = std::size_t{1} << 26;  ///< numbers, texts and containers in all
  std::size_t bytes = std::size_t{1} << 31;   ///< of the file
  std::size_t depth = 64;                     ///< of the stack of open containers
};

/// A parsed pickle. Values are numbered; containers hold numbers of values, so that one value may stand in several
/// places.
class Pickle {
 public:
  enum class Kind : std::uint8_t { none, boolean, integer, real, text, list, tuple, dict };
  using Value = std::uint32_t;

  /// Failure(input) when it is damaged, goes over a limit, or holds anything but plain data.
  static Pickle parse(std::string_view bytes, const PickleLimits& limits = {});

  Value root() const { return root_; }
  Kind kind(Value v) const { return nodes_[v].kind; }
  /// Items of a list or tuple; of a dict: key, value, key, value …
  const std::vector<Value>& items(Value v) const { return containers_[static_cast<std::size_t>(nodes_[v].payload)]; }
  /// Failure(input) when the value is of another kind.
  std::int64_t integer(Value v) const;
  const std::string& text(Value v) const;
  /// The member of a dict; false when it is not there.
  bool find(Value dict, std::string_view key, Value& out) const;
  std::size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    Kind kind = Kind::none;
    std::int64_t payload = 0;
  };
  std::vector<Node> nodes_;
  std::vector<std::vector<Value>> containers_;
  std::vector<std::string> texts_;
  Value root_ = 0;
  friend class PickleReader;
};

}  // namespace memplan
