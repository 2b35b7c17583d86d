#include "cli/report/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "cli/format_names.h"
#include "cli/output.h"
#include "cli/report/document.h"

namespace memplan::cli {

namespace {

constexpr std::uint8_t every_document = report_document | check_document | diff_document;

constexpr std::array format_table{
    ReportFormat{"text", ".txt", "for people, in a terminal", every_document, false, render_text},
    ReportFormat{"json", ".json", "for programs: everything, versioned", every_document, false, render_json},
    ReportFormat{"md", ".md", "Markdown: pull requests, step summaries, wikis", every_document, false, render_markdown},
    ReportFormat{"csv", ".csv", "spreadsheets and scripts", every_document, false, render_csv},
    ReportFormat{"sarif", ".sarif", "SARIF 2.1.0: code scanning services", report_document | check_document, false,
                 render_sarif},
    ReportFormat{"junit", ".xml", "JUnit XML: Jenkins, GitLab and others", report_document | check_document, false,
                 render_junit},
    ReportFormat{"github", ".txt", "GitHub workflow annotations", report_document | check_document, false,
                 render_github},
    ReportFormat{"gitlab", ".json", "GitLab code quality", report_document | check_document, false, render_gitlab},
    ReportFormat{"html", ".html", "one self-contained page", every_document, true, render_html},
    ReportFormat{"perfetto", ".pftrace", "a trace for the Perfetto UI", report_document, true, render_perfetto},
    ReportFormat{"snapshot", ".pickle", "a memory snapshot for PyTorch's viewer", report_document, true,
                 render_snapshot},
};
static_assert(std::equal(format_table.begin(), format_table.end(), format_names.begin(), format_names.end(),
                         [](const ReportFormat& format, std::string_view name) { return format.name == name; }));

const char* words_of(DocumentKind kind) {
  switch (kind) {
    case report_document:
      return "a report of one model";
    case check_document:
      return "the result of a gate";
    case diff_document:
      return "a comparison";
  }
  return "this document";
}

}  // namespace

std::span<const ReportFormat> report_formats() { return format_table; }

const ReportFormat& report_format(std::string_view name) {
  return *std::find_if(format_table.begin(), format_table.end(),
                       [&](const ReportFormat& f) { return f.name == known_format(name, "--format"); });
}

bool timeline_wanted(const Options& options) {
  return options.timeline || report_format(options.format_name).timeline ||
         std::any_of(options.exports.begin(), options.exports.end(),
                     [](const Export& e) { return report_format(e.format).timeline; });
}

std::string render(const Json& document, const ReportFormat& format, const View& view) {
  const DocumentKind kind = kind_of(document);
  if (!(format.documents & kind))
    fail(ErrorKind::usage, fmt::format("the format {} cannot show {}", format.name, words_of(kind)), "--format",
         "use text, json, md, html or csv");
  try {
    return format.render(document, view);
  } catch (const nlohmann::json::exception& error) {
    fail_input(fmt::format("the report lacks something or is damaged: {}", error.what()), {},
               "make the report again with --format json");
  }
}

void deliver(const Json& document, const Options& options) {
  const View view{make_style(options), options.top, options.quiet};
  View file = view;  // what a file holds must not depend on the terminal
  file.style.colour = false;
  file.style.ascii = options.ascii;
  file.style.width = options.width ? static_cast<std::size_t>(*options.width) : 100;
  file.quiet = false;
  // All of it is rendered before anything is written, so that an error leaves no half of a set behind.
  std::vector<std::string> texts;
  for (const Export& e : options.exports) texts.push_back(render(document, report_format(e.format), file));
  const std::string shown = render(document, report_format(options.format_name), view);
  for (std::size_t i = 0; i < texts.size(); ++i) write_out(texts[i], options.exports[i].path);
  write_out(shown, options.output);
}

}  // namespace memplan::cli
