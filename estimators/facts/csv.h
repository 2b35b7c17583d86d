// Tables of data/ as rows by the names of their columns.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace memplan {

class CsvRow {
 public:
  CsvRow(std::shared_ptr<const std::vector<std::string>> names, std::vector<std::string> cells)
      : names_(std::move(names)), cells_(std::move(cells)) {}

  /// The cell of a column. Failure(internal) where the table has no such column.
  const std::string& at(std::string_view column) const;

 private:
  std::shared_ptr<const std::vector<std::string>> names_;  ///< of all rows of a table
  std::vector<std::string> cells_;
};

/// RFC 4180 text (quoted cells, doubled quotes) whose first line names the columns; no line breaks in cells. Rows with
/// another number of cells are left out.
std::vector<CsvRow> read_csv(std::string_view text);

}  // namespace memplan
