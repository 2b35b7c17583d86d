// Tables of data/ as rows by the names of their columns.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace memplan {

using CsvRow = std::map<std::string, std::string>;

/// RFC 4180 text (quoted cells, doubled quotes) whose first line names the columns; no line breaks in cells. Rows with
/// another number of cells are left out.
std::vector<CsvRow> read_csv(std::string_view text);

}  // namespace memplan
