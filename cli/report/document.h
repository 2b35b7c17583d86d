// The one JSON document that every format is made from (docs/report.schema.json).
#pragma once

#include <cstdint>
#include <string>

#include "cli/answer/answer.h"
#include "cli/report/formats.h"
#include "cli/report/report.h"

namespace memplan::cli {

/// Minor versions only add members; readers take any version with the same major one.
inline constexpr const char* report_schema_version = "1.1";

/// How much of the tensors alive at the peak a document holds. They are most of it: what shows less saves their time.
enum class Detail : std::uint8_t {
  none,    ///< no tensors
  groups,  ///< the rows that text shows of them
  sums,    ///< the tensors, and their bytes by module, op and dtype: the document of the schema
};

/// An answer as a document of the kind "report". All sizes in bytes; all strings are clean (style.h).
Json document_of(const Answer& answer, const Options& options, Detail detail = Detail::sums);

/// Reads a saved document of schema version 1.x and completes what earlier minor versions did not have. Failure of
/// `kind` (input, or baseline where it serves as one) when it cannot be read or is of another major version.
Json load_document(const std::string& path, ErrorKind kind);

/// True when the file begins like a JSON object: a saved report rather than a model.
bool is_document(const std::string& path);

DocumentKind kind_of(const Json& document);

/// One line: verdict, peak, limit. What stderr gets beside a report that went elsewhere.
std::string one_line(const Json& document);

/// The module that a tensor of "tensors_at_peak" belongs to: where it was made, or whose parameter it is (or whose
/// gradient or optimizer state it is); empty outside of modules.
std::string owner_of(const Json& tensor);

/// The tensors alive at the peak as rows of a table, of a document with any detail.
std::vector<TensorGroup> groups_at_peak(const Json& document);

/// Sections that follow from "tensors_at_peak": bytes by module, by the op that made them, and by dtype, largest first.
void add_sums(Json& document);

}  // namespace memplan::cli
