// JUnit XML as Jenkins and GitLab read it: a suite per target, a case per rule.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/report/findings.h"
#include "cli/report/state.h"
#include "cli/report/words.h"

namespace memplan::cli {

namespace {

/// Text and attribute values; control characters are gone already (style.h, clean), and U+FFFE and U+FFFF are no XML.
std::string xml(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\xEF' && i + 2 < text.size() && text[i + 1] == '\xBF' &&
        (text[i + 2] == '\xBE' || text[i + 2] == '\xBF')) {
      out += '?';
      i += 2;
    } else if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

struct Case {
  std::string name, kind, type, message, text;  ///< kind: "", "failure", "error" or "skipped"
};

std::string suite_text(const std::string& name, const std::vector<Case>& cases, std::array<std::size_t, 4>& totals) {
  std::size_t failures = 0, errors = 0, skipped = 0;
  std::string body;
  for (const Case& c : cases) {
    failures += c.kind == "failure", errors += c.kind == "error", skipped += c.kind == "skipped";
    body += fmt::format("    <testcase name=\"{}\" classname=\"{}\" time=\"0\"", xml(c.name), xml(name));
    if (c.kind.empty())
      body += "/>\n";
    else if (c.kind == "skipped")
      body += fmt::format(">\n      <skipped message=\"{}\"/>\n    </testcase>\n", xml(c.message));
    else
      body += fmt::format(">\n      <{0} type=\"{1}\" message=\"{2}\">{3}</{0}>\n    </testcase>\n", c.kind,
                          xml(c.type), xml(c.message), xml(c.text));
  }
  totals[0] += cases.size(), totals[1] += failures, totals[2] += errors, totals[3] += skipped;
  return fmt::format(
      "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"0\">\n{}  "
      "</testsuite>\n",
      xml(name), cases.size(), failures, errors, skipped, body);
}

}  // namespace

std::string render_junit(const Json& document, const View&) {
  const std::vector<Finding> findings = findings_of(document);
  std::array<std::size_t, 4> totals{};
  std::string suites;
  if (document.value("kind", "report") == "check") {
    for (const Json& t : document.at("targets")) {
      const std::string name = text_of(t, "name");
      std::vector<Case> cases;
      const auto advice = [&](const std::string& code) {
        for (const Finding& f : findings)
          if (f.target == name && f.code == code) return f.advice;
        return std::string();
      };
      if (const Json& e = t.at("error"); !e.is_null())
        cases.push_back({row_of(GateRule::error).name, "error", row_of(GateRule::error).code, text_of(e, "message"),
                         text_of(e, "hint")});
      for (const Json& r : t.at("rules")) {
        const GateState state = state_of(r);
        const std::string code = text_of(r, "code"), message = text_of(r, "message");
        // A warning stops nothing, and JUnit knows no warnings.
        const std::string kind = state == GateState::failed                                 ? "failure"
                                 : state == GateState::passed || state == GateState::warned ? ""
                                                                                            : "skipped";
        cases.push_back({text_of(r, "rule"), kind, code, state == GateState::ignored ? text_of(r, "reason") : message,
                         advice(code)});
      }
      if (cases.empty()) cases.push_back({"estimated", {}, {}, {}, {}});
      suites += suite_text(name, cases, totals);
    }
  } else {
    std::vector<Case> cases;
    for (const Finding& f : findings)
      cases.push_back({f.rule, f.level == "error" ? "failure" : "", f.code, f.message, f.advice});
    if (cases.empty()) cases.push_back({row_of(GateRule::no_fit).name, {}, {}, {}, {}});
    suites = suite_text(file_name(text_of(document.at("input"), "path")), cases, totals);
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"memplan\" tests=\"{}\" failures=\"{}\" "
      "errors=\"{}\" time=\"0\">\n{}</testsuites>\n",
      totals[0], totals[1], totals[2], suites);
}

}  // namespace memplan::cli
