// What is fed with hostile bytes. A target returns for any input: with a value, or with an Error that a user could act
// on. It throws what libFuzzer or the replay shall count as a finding: any other exception, an Error of the kind
// `internal`, a broken invariant.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "estimators/base/error.h"

namespace memplan::fuzz {

struct Finding : std::logic_error {
  using std::logic_error::logic_error;
};

/// What mutators know of a target's inputs.
enum class Grammar : std::uint8_t { bytes, json, protobuf };

struct Target {
  std::string_view name;  ///< also of its folder in tests/fuzz/corpus
  Grammar grammar;
  void (*run)(std::string_view bytes);
  std::size_t most;  ///< bytes of an input that say something; longer ones only cost time
};

/// All of the program that asks.
std::span<const Target> targets();

/// Those that need a few files of memplan and no table of ops. A program of them alone runs some ten times faster:
/// after each input libFuzzer looks at a counter for every edge of the program.
std::span<const Target> parser_targets();

/// The target of a name; null where there is none.
const Target* find_target(std::string_view name);

/// A finding, unless the error is one of those that a user causes.
void expect_told(const Error& error);

/// Runs `body`; a Failure is fine where a user causes it, anything else that it throws is a finding.
template <class Body>
void expect_told(const Body& body) {
  const auto result = catching([&] {
    body();
    return true;
  });
  if (!result) expect_told(result.error());
}

// One function a target, in the file that its name says.
void fuzz_allocator(std::string_view bytes);
void fuzz_tape(std::string_view bytes);

}  // namespace memplan::fuzz
