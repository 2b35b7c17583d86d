// Pieces of Markdown that cannot be broken by what is put into them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/report/formats.h"

namespace memplan::cli {

/// A name in a code span, in which neither HTML nor Markdown nor @mentions mean anything; at most `limit` columns. In a
/// table a bar would end the cell, so it is escaped.
std::string md_code(std::string_view text, std::size_t limit = 120);

/// A sentence in which nothing is markup.
std::string md_text(std::string_view text);

/// A text inside of an HTML tag, where Markdown means nothing.
std::string md_html(std::string_view text);

struct MdTable {
  std::vector<std::string> head;
  std::string align;  ///< 'l' or 'r' per column
  std::vector<std::vector<std::string>> rows;
  std::string print() const;
};

/// Blocks in order of weight, under the size that pages take comments in. What does not fit is left out from the first
/// block that is too large on, and that is said; the first block (the headline) always stays.
struct MdPage {
  std::vector<std::string> blocks;
  std::string print() const;
};

inline constexpr std::size_t md_limit = 60000;  ///< GitHub refuses comments above 65,536 characters

}  // namespace memplan::cli
