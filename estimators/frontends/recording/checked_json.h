// What a JSON of a recording has to be: every access says what is wrong where it is not.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "estimators/base/dtype.h"
#include "estimators/base/error.h"

namespace memplan::recording {

using nlohmann::json;

constexpr std::int64_t largest_size = std::int64_t{1} << 50;  ///< no device has a pebibyte
constexpr std::size_t most_dimensions = 64;

class Reader {
 public:
  explicit Reader(std::string where) : where_(std::move(where)) {}

  [[noreturn]] void bad(const std::string& what) const {
    fail_input("the recording is damaged: " + what, where_, "record the module again with memplan.record");
  }

  void check(bool good, const char* what) const {
    if (!good) bad(what);
  }

  std::int64_t number(const json& j, std::int64_t low, std::int64_t high, const char* what) const {
    if (!j.is_number_integer() || (j.is_number_unsigned() && j.get<std::uint64_t>() > INT64_MAX))
      bad(fmt::format("{} is no number", what));
    const auto n = j.get<std::int64_t>();
    if (n < low || n > high) bad(fmt::format("{} is {}, outside of {} to {}", what, n, low, high));
    return n;
  }

  std::vector<std::int32_t> indices(const json& j, std::int64_t low, std::int64_t high, const char* what) const {
    check(j.is_array(), what);
    std::vector<std::int32_t> out;
    out.reserve(j.size());
    for (const json& n : j) out.push_back(static_cast<std::int32_t>(number(n, low, high, what)));
    return out;
  }

  std::vector<std::int64_t> sizes(const json& j, const char* what) const {
    check(j.is_array(), what);
    std::vector<std::int64_t> out;
    out.reserve(j.size());
    for (const json& n : j) out.push_back(number(n, 0, largest_size, what));
    return out;
  }

  DType dtype(const json& j) const {
    const auto found = dtype_from_name(j.get_ref<const std::string&>());
    if (!found) bad(fmt::format("no tensor has the type '{}'", j.get_ref<const std::string&>()));
    return *found;
  }

 private:
  std::string where_;
};

}  // namespace memplan::recording
