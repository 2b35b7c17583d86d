// How text looks on this terminal: colours, ASCII or not, width. Nothing here changes a figure or a verdict.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/options.h"

namespace memplan::cli {

enum class Paint { none, bold, dim, green, yellow, red, cyan };

struct Style {
  bool colour = false;
  bool ascii = false;
  std::size_t width = 100;

  std::string paint(std::string_view text, Paint paint) const;
  const char* dot() const { return ascii ? "|" : "·"; }
  const char* dash() const { return ascii ? "-" : "–"; }
  const char* ellipsis() const { return ascii ? "..." : "…"; }
  const char* times() const { return ascii ? "x" : "×"; }
};

/// `auto` colours only a terminal, never when NO_COLOR is set (and not empty) or the report goes to a file.
Style make_style(const Options& options);

/// Names come from files: control characters (ESC starts terminal commands), bytes that are not UTF-8 and the
/// marks that turn the writing direction are replaced by '?', and so is what would be a command to a CI service that
/// reads the log ("::error::" at the start of a word). Settings that the library names are shown as flags.
std::string clean(std::string_view text);

/// `clean` that keeps line breaks.
std::string clean_lines(std::string_view text);

/// Columns on a terminal, one per code point (names of models are not in wide scripts often enough to matter).
std::size_t columns(std::string_view text);

/// At most `limit` columns; the middle goes, because paths differ at both ends.
std::string shorten(std::string_view text, std::size_t limit, const Style& style);

/// Breaks at spaces; continuation lines are indented.
std::string wrap(std::string_view text, std::size_t width, std::size_t indent, std::size_t first_used = 0);

/// Rows of cells, aligned. `right` tells which columns are numbers; the column `flexible` is shortened to the width.
struct Table {
  std::vector<std::string> head;
  std::vector<bool> right;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::size_t> flexible;  ///< columns that give way when the table is too wide, the first one first
  std::string print(const Style& style) const;
};

/// 1234567 -> "1,234,567".
std::string grouped(std::int64_t number);
/// 124439808 -> "124.4 M".
std::string short_count(std::int64_t number);

/// Sizes in one unit with a fixed number of decimals, such that the printed parts add up to the printed total
/// (largest remainders are rounded up). The last entry is the total.
struct Column {
  std::string unit;
  std::vector<std::string> parts;
  std::string total;
};
Column add_up(const std::vector<Bytes>& parts);

}  // namespace memplan::cli
