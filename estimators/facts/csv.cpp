#include "estimators/facts/csv.h"

#include <algorithm>

namespace memplan {

namespace {

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

}  // namespace

std::vector<CsvRow> read_csv(std::string_view text) {
  std::vector<CsvRow> rows;
  std::vector<std::string> names;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::vector<std::string> cells = cells_of(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (names.empty()) {
      names = cells;
      continue;
    }
    if (cells.size() != names.size()) continue;
    CsvRow row;
    for (std::size_t i = 0; i < cells.size(); ++i) row[names[i]] = cells[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace memplan
