// What the formats share: errors, the table of tensors, words.
#pragma once

#include <string>
#include <vector>

#include "cli/answer/answer.h"
#include "cli/report/formats.h"
#include "cli/report/words.h"
#include "cli/terminal/style.h"

namespace memplan::cli {

/// An error as people (stderr) or programs (stdout, with --format json) read it. `code` is the exit code.
std::string text_error(const Error& error, const Style& style);
std::string json_error(const Error& error, int code);
int exit_code_of(ErrorKind kind);
/// "usage", "input", "baseline" or "internal"
const char* kind_name(ErrorKind kind);

/// A tensor as tables show it.
struct TensorRow {
  std::string name, dtype, category, module, reason;
  std::vector<std::int64_t> sizes;
  std::int64_t bytes = 0;
};
std::vector<TensorRow> rows_of(const std::vector<LiveTensor>& tensors);
std::vector<TensorRow> rows_of(const Json& tensors_at_peak);
/// Exporters wrap the user's module, so that every path begins with "model.": it tells nothing, and tables are narrow.
/// Empty where not every path does.
std::string common_root(const std::vector<TensorRow>& tensors);

/// Tensors that share a row: equal ones of repeated layers, largest first. `name` has '*' for the number of the layer.
struct TensorGroup {
  std::int64_t count = 0, bytes = 0;
  std::string category, name, shape, dtype, reason;
};
std::vector<TensorGroup> groups_of(const std::vector<TensorRow>& tensors);

/// The table of tensors alive at the peak, with at most so many rows; 0: all of them.
std::string tensor_table(const std::vector<TensorGroup>& groups, std::size_t rows, const Style& style);

}  // namespace memplan::cli
