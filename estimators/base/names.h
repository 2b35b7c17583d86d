// The words of an enum: one table each, which parsing, help and texts read.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace memplan {

template <class E>
struct Named {
  const char* name;
  E value;
  bool also = false;  ///< a second word for a value that has one: it is understood, and never printed
};

template <class E, std::size_t N>
constexpr const char* name_in(const std::array<Named<E>, N>& table, const E& value) {
  for (const Named<E>& row : table)
    if (row.value == value && !row.also) return row.name;
  return "?";
}

template <class E, std::size_t N>
constexpr std::optional<E> value_in(const std::array<Named<E>, N>& table, std::string_view name) {
  for (const Named<E>& row : table)
    if (row.name == name) return row.value;
  return std::nullopt;
}

template <const auto& table>
inline constexpr auto choice_letters = [] {
  constexpr std::size_t size = [] {
    std::size_t n = 0;
    for (const auto& row : table)
      if (!row.also) n += std::string_view(row.name).size() + 1;
    return n;
  }();
  std::array<char, size> text{};
  std::size_t at = 0;
  for (const auto& row : table) {
    if (row.also) continue;
    for (const char c : std::string_view(row.name)) text[at++] = c;
    text[at++] = '|';
  }
  return text;
}();

/// "fp32|amp-bf16|bf16": the words of a table as help shows them.
template <const auto& table>
inline constexpr std::string_view choices{choice_letters<table>.data(), choice_letters<table>.size() - 1};

}  // namespace memplan
