// GitHub's workflow commands ("::error file=…::message") and GitLab's code quality report.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/report/findings.h"

namespace memplan::cli {

namespace {

constexpr std::size_t most_annotations = 5;  ///< GitHub shows ten of a kind per step, and other tools want some of them

std::string escaped(const std::string& text, bool property) {
  std::string out;
  for (const char c : text) {
    if (c == '%')
      out += "%25";
    else if (c == '\r')
      out += "%0D";
    else if (c == '\n')
      out += "%0A";
    else if (property && c == ':')
      out += "%3A";
    else if (property && c == ',')
      out += "%2C";
    else
      out += c;
  }
  return out;
}

int rank(const std::string& level) { return level == "error" ? 0 : level == "warning" ? 1 : 2; }

}  // namespace

std::string render_github(const Json& document, const View&) {
  std::vector<Finding> findings = findings_of(document);
  std::erase_if(findings, [](const Finding& f) { return !f.ignored.empty(); });
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return rank(a.level) < rank(b.level); });
  std::string out;
  for (std::size_t i = 0; i < findings.size() && i < most_annotations; ++i) {
    const Finding& f = findings[i];
    std::string message = fmt::format("{}: {}", f.target, f.message);
    if (!f.advice.empty()) message += "\n" + f.advice;
    if (i + 1 == most_annotations && findings.size() > most_annotations)
      message += fmt::format("\nand {} more, see the summary", findings.size() - most_annotations);
    out += fmt::format("::{} file={},line={},title={}::{}\n", f.level == "note" ? "notice" : f.level,
                       escaped(f.file, true), std::max<std::int64_t>(1, f.line),
                       escaped(fmt::format("memplan {} {}", f.code, f.rule), true), escaped(message, false));
  }
  return out;
}

std::string render_gitlab(const Json& document, const View&) {
  Json list = Json::array();
  std::set<std::string> seen;  // of equal fingerprints GitLab keeps one
  for (const Finding& f : findings_of(document)) {
    if (!f.ignored.empty()) continue;
    std::string fingerprint = fingerprint_of(f);
    for (int copy = 2; !seen.insert(fingerprint).second; ++copy)
      fingerprint = fmt::format("{}-{}", fingerprint_of(f), copy);
    list.push_back(
        {{"description", fmt::format("{}: {}{}{}", f.target, f.message, f.advice.empty() ? "" : "; ", f.advice)},
         {"check_name", f.code + " " + f.rule},
         {"fingerprint", fingerprint},
         {"severity", f.level == "error"     ? "critical"
                      : f.level == "warning" ? "minor"
                                             : "info"},
         {"location", {{"path", f.file}, {"lines", {{"begin", std::max<std::int64_t>(1, f.line)}}}}}});
  }
  return list.dump(2) + "\n";
}

}  // namespace memplan::cli
