// Reading the calls of a recorded forward pass.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "estimators/frontends/recording/calls.h"

namespace memplan::recording {

/// The version of the calls that this reader knows. Those of version 1 were written for people: null.
constexpr std::int64_t calls_version = 2;

/// Every number is checked: values are made before they are read, indices are in range. Failure(input) that says
/// `where`.
std::shared_ptr<const Calls> read_calls(const nlohmann::json& j, std::size_t inputs, const std::string& where);

}  // namespace memplan::recording
