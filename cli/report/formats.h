// The formats of a report: each is a free function from the one JSON document to text or bytes, in a file of its own,
// and one row of the table in formats.cpp. A format computes nothing about memory; what it needs is in the document.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cli/flags/options.h"
#include "cli/terminal/style.h"

namespace memplan::cli {

using Json = nlohmann::ordered_json;

/// The kinds of documents, told by the member "kind" (docs/report.schema.json); a document without it is a report.
enum DocumentKind : std::uint8_t {
  report_document = 1,  ///< one model, one setup
  check_document = 2,   ///< the targets of a memplan.toml, each with its report and its rules
  diff_document = 4,    ///< two reports and what moved between them
};

/// How it is to look. Formats for programs ignore all of it.
struct View {
  Style style;
  std::optional<std::int64_t> top;  ///< rows of tables; 0: all
  bool quiet = false;
};

/// A renderer is a function of a file of its own; the table declares it.
using Renderer = std::string(const Json& document, const View& view);

struct ReportFormat {
  std::string_view name;       ///< of --format and --export
  std::string_view extension;  ///< of files that hold it, with the dot
  std::string_view summary;    ///< what it is for, a few words
  std::uint8_t documents;      ///< DocumentKinds that it can show
  RunShown run;                ///< what it wants of the run, which is left out of documents that nobody asked it for
  Renderer* render;
};

std::span<const ReportFormat> report_formats();

/// The row of a name (format_names.h).
const ReportFormat& report_format(std::string_view name);

/// What the format on stdout and the exports want of the run. All are made from one document, so what else would come
/// to lie in it is left out only where none of them shows it.
RunShown run_wanted(const Options& options);

/// The document in a format. Failure(usage) when the format cannot show this kind of document; Failure(input) when
/// members of the document are not of the type that they must have.
std::string render(const Json& document, const ReportFormat& format, const View& view);

/// Writes the document to stdout (or -o) in --format and to every file of --export; each file appears only when it is
/// complete.
void deliver(const Json& document, const Options& options);

// Parts of render_text.
std::string check_text(const Json& document, const View& view);
std::string diff_text(const Json& document, const View& view);
/// What the gate of a report found (--max-peak, --baseline); empty of a report that had none.
std::string report_gate_text(const Json& document, const Style& style);

}  // namespace memplan::cli
