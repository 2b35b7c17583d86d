#include "estimators/facts/csv.h"

#include <algorithm>

#include "estimators/base/error.h"

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

const std::string& CsvRow::at(std::string_view column) const {
  const auto it = std::find(names_->begin(), names_->end(), column);
  if (it == names_->end()) fail(ErrorKind::internal, "a table of data/ has no column " + std::string(column));
  return cells_[static_cast<std::size_t>(it - names_->begin())];
}

std::vector<CsvRow> read_csv(std::string_view text) {
  std::vector<CsvRow> rows;
  std::shared_ptr<const std::vector<std::string>> names;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    std::vector<std::string> cells = cells_of(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!names)
      names = std::make_shared<const std::vector<std::string>>(std::move(cells));
    else if (cells.size() == names->size())
      rows.emplace_back(names, std::move(cells));
  }
  return rows;
}

}  // namespace memplan
