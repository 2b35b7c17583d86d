#include "cli/report/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/answer/node_stats.h"
#include "cli/flags/format_names.h"
#include "cli/report/document.h"
#include "cli/terminal/output.h"

namespace memplan::cli {

Renderer render_text, render_json, render_markdown, render_csv, render_sarif, render_junit, render_github,
    render_gitlab, render_html, render_perfetto, render_snapshot, render_ort_node_stats;

namespace {

constexpr std::uint8_t every_document = report_document | check_document | diff_document;

constexpr std::array format_table{
    ReportFormat{"text", ".txt", "for people, in a terminal", every_document, RunShown::none, render_text},
    ReportFormat{"json", ".json", "for programs: everything, versioned", every_document, RunShown::none, render_json},
    ReportFormat{"md", ".md", "Markdown: pull requests, step summaries, wikis", every_document, RunShown::none,
                 render_markdown},
    ReportFormat{"csv", ".csv", "spreadsheets and scripts", every_document, RunShown::none, render_csv},
    ReportFormat{"sarif", ".sarif", "SARIF 2.1.0: code scanning services", report_document | check_document,
                 RunShown::none, render_sarif},
    ReportFormat{"junit", ".xml", "JUnit XML: Jenkins, GitLab and others", report_document | check_document,
                 RunShown::none, render_junit},
    ReportFormat{"github", ".txt", "GitHub workflow annotations", report_document | check_document, RunShown::none,
                 render_github},
    ReportFormat{"gitlab", ".json", "GitLab code quality", report_document | check_document, RunShown::none,
                 render_gitlab},
    ReportFormat{"html", ".html", "one self-contained page", every_document, RunShown::surrounded, render_html},
    ReportFormat{"perfetto", ".pftrace", "a trace for the Perfetto UI", report_document, RunShown::itself,
                 render_perfetto},
    ReportFormat{"snapshot", ".pickle", "a memory snapshot for PyTorch's viewer", report_document, RunShown::itself,
                 render_snapshot},
    ReportFormat{node_stats_format, ".csv", "costs of nodes, by which ONNX Runtime places them under a memory limit",
                 report_document, RunShown::none, render_ort_node_stats},
};

const ReportFormat* find_format(std::string_view name) {
  const auto found =
      std::find_if(format_table.begin(), format_table.end(), [&](const ReportFormat& f) { return f.name == name; });
  return found == format_table.end() ? nullptr : &*found;
}

std::string joined_names(std::string_view separator) {
  std::string names;
  for (const ReportFormat& format : format_table)
    names += fmt::format("{}{}", names.empty() ? "" : separator, format.name);
  return names;
}

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

std::string_view format_choices() {
  static const std::string choices = joined_names("|");
  return choices;
}

std::string_view known_format(std::string_view name, std::string_view flag) {
  const ReportFormat* known = find_format(name);
  if (!known)
    fail(ErrorKind::usage, fmt::format("'{}' is not a value for {}", name, flag), std::string(flag),
         fmt::format("use one of {}", joined_names(", ")));
  return known->name;
}

const ReportFormat& report_format(std::string_view name) { return *find_format(known_format(name, "--format")); }

RunShown run_wanted(const Options& options) {
  std::vector<RunShown> wanted{report_format(options.format_name).run};
  for (const Export& e : options.exports) wanted.push_back(report_format(e.format).run);
  const auto is = [](RunShown shown) { return [shown](RunShown w) { return w == shown; }; };
  if (options.timeline) return RunShown::surrounded;
  if (std::all_of(wanted.begin(), wanted.end(), is(RunShown::none))) return RunShown::none;
  return std::all_of(wanted.begin(), wanted.end(), is(RunShown::itself)) ? RunShown::itself : RunShown::surrounded;
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
