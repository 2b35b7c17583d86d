#include "estimators/base/op_name.h"

#include <mutex>
#include <unordered_set>

namespace memplan {

namespace {

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

const std::string* interned(std::string_view name) {
  // Never freed: names are compared until the very end, in destructors of static objects too.
  static auto* names = new std::unordered_set<std::string, TextHash, std::equal_to<>>;
  static std::mutex guard;
  const std::lock_guard lock(guard);
  const auto found = names->find(name);
  return &(found != names->end() ? *found : *names->emplace(name).first);
}

}  // namespace

OpName::OpName() {
  static const std::string* const empty = interned("");
  name_ = empty;
}
OpName::OpName(std::string_view name) : name_(interned(name)) {}

}  // namespace memplan
