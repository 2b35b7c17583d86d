// toml++ 3.3 takes for granted what its asserts say where NDEBUG is set, and a line like "[`a]" breaks one: they throw.
#pragma once

#include <stdexcept>

constexpr void toml_assert(bool holds) {
  if (!holds) throw std::runtime_error("a key begins with a character that no key has");
}
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_EXCEPTIONS 1
#define TOML_ASSERT(expr) toml_assert(static_cast<bool>(expr))
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")
