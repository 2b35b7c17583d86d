// Where a report goes: stdout, or a file that appears only when it is complete.
#pragma once

#include <string>
#include <string_view>

namespace memplan::cli {

/// A message to stderr. Where nobody can read it (the disk is full, the reader is gone) nothing else changes.
void tell(std::string_view text);

/// Writes to `path`, or to stdout when it is empty. A file is written beside its destination and renamed, so that a
/// reader (or an interrupted run) never sees half of it. Failure(input) when it cannot be written.
void write_out(std::string_view text, const std::string& path);

}  // namespace memplan::cli
