// Mutations that keep the form of an input, so that more of them reach what lies behind a parser.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace memplan::fuzz {

using Random = std::mt19937_64;

/// One leaf or member of a JSON text changed, dropped, doubled or swapped with another one; empty where `text` is no
/// JSON.
std::string mutated_json(const std::string& text, Random& random);

/// One field of a protobuf message, at any depth, changed, dropped, doubled or cut; empty where `bytes` is no message.
std::string mutated_protobuf(const std::string& bytes, Random& random);

}  // namespace memplan::fuzz
