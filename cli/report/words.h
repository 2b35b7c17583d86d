// Phrases about a report that every format for people shares, so that all of them say the same.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/report/formats.h"
#include "cli/report/state.h"

namespace memplan::cli {

/// A member that must be a string.
std::string text_of(const Json& object, std::string_view member);

/// A size as people read it: "1.50 GiB".
std::string human(std::int64_t bytes);
/// "+1.50 GiB", "-12 B", "0 B"
std::string human_change(std::int64_t bytes);

/// " (assumed)" of a dimension that nobody gave
const char* origin_words(std::string_view origin);

/// "DOES NOT FIT" of "no-fit"
const char* headline_of(std::string_view verdict);

/// "library workspaces" of the part "workspaces"
std::string part_name(const std::string& category);

/// "training  fp32  adamw  4 micro-batches" of the member "setup"
std::string setup_words(const Json& setup);

/// "step 2 of 3, backward, aten::mm in lm_head" of a report
std::string peak_place(const Json& document);

/// "gpt2.onnx" of a path
std::string file_name(const std::string& path);

/// "8x1024x768": the sizes of a tensor.
std::string shape_text(const std::vector<std::int64_t>& sizes);

/// "transformer.h.*.mlp" of "transformer.h.11.mlp": repeated layers look alike but for their numbers.
std::string without_numbers(std::string_view name);

/// Rows of a list of the document as tables show them: those of repeated layers together, as "h.*.mlp" with their
/// count.
struct NamedRow {
  std::string name;
  DiffState state = DiffState::same;
  std::int64_t count = 0, bytes = 0, base = 0, head = 0, delta = 0;
};
/// By size, or by the size of the change where the rows of `list` have one.
std::vector<NamedRow> merged_rows(const Json& list, const char* member);

/// The command that made a report, as a shell takes it, with some flags left out (--batch) and words added. A flag
/// among the added words replaces the one that was given.
std::string command_of(const Json& document, const std::vector<std::string_view>& without = {},
                       const std::string& with = {});

/// The command that a reader of a report is likely to want next.
std::string next_command(const Json& document);

}  // namespace memplan::cli
