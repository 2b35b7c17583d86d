// What moved between two reports. Differences are of exact bytes: a report against itself gives zero everywhere.
#pragma once

#include "cli/report/document.h"

namespace memplan::cli {

/// A document of the kind "diff" of two of the kind "report". Rows are sorted by the size of the change; what is new,
/// gone or unchanged says so in "state", so that nothing is ever divided by zero.
Json diff_of(const Json& base, const Json& head);

/// What differs between the setups of two reports: [{name, base, head}].
Json setup_changes(const Json& base, const Json& head);

/// The report in a document: itself, or that of one target of a gate's result. Failure(usage) when `target` is empty
/// and there are several, or none of this name.
const Json& report_in(const Json& document, const std::string& target, const std::string& path);

}  // namespace memplan::cli
