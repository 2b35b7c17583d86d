// The modules of a model that strategies work on: its repeated blocks, or those that globs name.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/setup/field.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// First and last call of every scope; -1 where a scope holds no call.
struct ScopeSpans {
  explicit ScopeSpans(const Tape& tape);
  std::vector<std::int32_t> first, last;
};

/// "blocks.12" without its number: the list that a block belongs to.
std::string_view without_number(std::string_view path);

/// Modules of one class whose paths differ only in a number at the end, containers and leaves left out. Leaves such as
/// the layers of an nn.Sequential of Linears are no blocks. Indices into Tape::scopes, nested ones included.
std::set<std::int32_t> repeated_modules(const Tape& tape);

/// Modules whose path matches the glob; nested ones included.
std::set<std::int32_t> matching_modules(const Tape& tape, const std::string& glob);

/// Those of `scopes` that lie inside no other one of them.
std::set<std::int32_t> outermost(const Tape& tape, const std::set<std::int32_t>& scopes);

/// The modules that the globs name ("blocks": the repeated modules), in the order in which they run. Failure(usage),
/// blaming `field`, for a glob that matches nothing.
std::set<std::int32_t> named_modules(const Tape& tape, const std::vector<std::string>& globs, Field field);

/// Failure(usage): `glob` (or "blocks", "every:N", "groups:N") names no module of this model.
[[noreturn]] void no_such_module(const Tape& tape, const std::string& glob, Field field);

}  // namespace memplan
