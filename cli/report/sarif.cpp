// SARIF 2.1.0 (OASIS), the part that code scanning services read: one run, stable rules and fingerprints, paths
// relative to the repository.
#include <fmt/format.h>

#include <cctype>
#include <nlohmann/json.hpp>

#include "cli/report/codes.h"
#include "cli/report/findings.h"
#include "cli/report/words.h"

namespace memplan::cli {

namespace {

constexpr std::size_t most_results = 5000;  ///< what code scanning shows of a run

/// A path as a URI reference (RFC 3986).
std::string uri_of(const std::string& path) {
  std::string uri;
  for (const char c : path) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u) || std::string_view("-._~/").find(c) != std::string_view::npos)
      uri += c;
    else
      uri += fmt::format("%{:02X}", u);
  }
  // The first segment must not look like a scheme; a leading slash would make it absolute.
  return uri.empty() ? "." : uri;
}

/// In messages "[text](link)" is a link and '\' escapes (SARIF 3.11.6).
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string render_sarif(const Json& document, const View&) {
  Json rules = Json::array();
  for (const GateRuleRow& r : gate_rules)
    rules.push_back({{"id", r.code},
                     {"name", r.name},
                     {"shortDescription", {{"text", r.text}}},
                     {"help", {{"text", fmt::format("{} docs/ci.md, {}", r.text, r.code)}}},
                     {"defaultConfiguration", {{"level", r.level}}}});
  Json results = Json::array();
  for (const Finding& f : findings_of(document)) {
    if (results.size() == most_results) break;
    std::size_t index = 0;
    while (index < gate_rules.size() && f.code != gate_rules[index].code) ++index;
    std::string text = fmt::format("{}: {}.", f.target, f.message);
    if (!f.advice.empty()) text += " To do: " + f.advice + ".";
    Json location{{"physicalLocation",
                   {{"artifactLocation", {{"uri", uri_of(f.file)}}},
                    {"region", {{"startLine", std::max<std::int64_t>(1, f.line)}}}}}};
    if (!f.module.empty())
      location["logicalLocations"] = Json::array({{{"fullyQualifiedName", f.module}, {"kind", "module"}}});
    Json result{{"ruleId", f.code},
                {"ruleIndex", index},
                {"level", f.level},
                {"message", {{"text", plain(text)}}},
                {"locations", Json::array({location})},
                {"partialFingerprints", {{"memplan/v1", fingerprint_of(f)}}}};
    if (!f.ignored.empty())
      result["suppressions"] = Json::array({{{"kind", "external"}, {"justification", f.ignored}}});
    results.push_back(std::move(result));
  }
  Json j;
  j["$schema"] = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";
  j["version"] = "2.1.0";
  j["runs"] = Json::array(
      {{{"tool", {{"driver", {{"name", "memplan"}, {"version", document.at("tool").at("version")}, {"rules", rules}}}}},
        {"columnKind", "utf16CodeUnits"},
        {"results", results}}});
  return j.dump(2) + "\n";
}

}  // namespace memplan::cli
