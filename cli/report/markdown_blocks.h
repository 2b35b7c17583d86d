// Blocks of a page that reports, comparisons and gates have in common.
#pragma once

#include <cstddef>
#include <string>

#include "cli/report/markdown.h"

namespace memplan::cli {

/// Rows of a table: as many as --top says, 200 at most.
std::size_t row_limit(const View& view, std::size_t usual);

/// A part that is closed at first; nothing where it has no body.
std::string md_fold(const std::string& title, const std::string& body);

/// "+1.50 GiB (+3.2 %)" of a comparison
std::string change_of(const Json& diff);

/// Changes of the setup that a report proposes. `fix`: the change that a gate asks for; the least that fits the card
/// otherwise.
std::string changes_block(const Json& report, bool needed, const Json& fix);

/// What a gate found, a line for each rule; only those that complain or are ignored unless `every`.
std::string rule_lines(const Json& rules, bool every);
std::string fix_line(const Json& fix);

/// What moved, by part, module and tensor.
std::string diff_tables(const Json& diff, std::size_t limit);
/// The values of the setup that differ.
std::string setup_list(const Json& changes);

// The pages, each in a file of its own.
std::string report_md(const Json& document, const View& view);
std::string diff_md(const Json& document, const View& view);
std::string check_md(const Json& document, const View& view);

}  // namespace memplan::cli
