// Reports: an answer as text for people or as versioned JSON for programs.
#pragma once

#include <string>

#include "cli/answer.h"
#include "cli/report/style.h"

namespace memplan::cli {

inline constexpr const char* report_schema_version = "1.0";

std::string text_report(const Answer& answer, const Options& options, const Style& style);

/// One line: verdict, peak, limit. What --quiet prints, and what stderr gets beside a report that went elsewhere.
std::string one_line(const Answer& answer);

/// docs/report.schema.json
std::string json_report(const Answer& answer, const Options& options);

/// An error as people (stderr) or programs (stdout, with --format json) read it. `code` is the exit code.
std::string text_error(const Error& error, const Style& style);
std::string json_error(const Error& error, int code);
int exit_code_of(ErrorKind kind);

/// The table of tensors alive at the peak, largest first; equal ones of repeated layers share a row.
std::string tensor_table(const std::vector<LiveTensor>& tensors, std::size_t rows, const Style& style);

/// "8x1024x768": the sizes of a tensor.
std::string shape_text(const std::vector<std::int64_t>& sizes);

}  // namespace memplan::cli
