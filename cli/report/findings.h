// What a document complains about, one by one: what SARIF, JUnit, annotations and code quality reports are made of.
#pragma once

#include <string>
#include <vector>

#include "cli/report/formats.h"

namespace memplan::cli {

struct Finding {
  std::string rule, code;  ///< "over-limit", "MP110": both stable
  std::string level;       ///< "error", "warning", "note"
  std::string target;      ///< of the configuration, or the model's file
  std::string message;     ///< one sentence without a final stop
  std::string advice;      ///< what would make it pass; may be empty
  std::string file;        ///< the configuration, where a line can be shown; the model otherwise
  std::int64_t line = 1;
  std::string module;   ///< where in the model the peak is; may be empty
  std::string ignored;  ///< the reason why it is ignored; such a finding complains about nothing
};

/// In the order of the document. A model's file has no lines, so findings of a gate point at its configuration.
std::vector<Finding> findings_of(const Json& document);

/// Of rule, target and module, never of a figure: the same finding keeps its fingerprint while its bytes change.
std::string fingerprint_of(const Finding& finding);

}  // namespace memplan::cli
