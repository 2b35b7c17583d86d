// Tables for spreadsheets and scripts (RFC 4180), one row per thing that has bytes.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/report/formats.h"
#include "cli/report/state.h"
#include "cli/report/words.h"

namespace memplan::cli {

namespace {

/// A spreadsheet takes a text that begins like a formula for one, so it gets an apostrophe in front.
std::string cell(std::string text) {
  if (!text.empty() && std::string_view("=+-@\t").find(text[0]) != std::string_view::npos) text.insert(0, "'");
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string cell(const Json& value) {
  if (value.is_null()) return {};
  return value.is_string() ? cell(value.get<std::string>()) : value.is_number() ? value.dump() : cell(value.dump());
}

class Rows {
 public:
  explicit Rows(std::string_view head) : text_(std::string(head) + "\r\n") {}
  template <class... Cells>
  void add(const Cells&... cells) {
    std::string line;
    bool first = true;
    ((line += (first ? "" : ",") + cell(Json(cells)), first = false), ...);
    text_ += line + "\r\n";
  }
  std::string text() { return std::move(text_); }

 private:
  std::string text_;
};

std::string of_report(const Json& d) {
  Rows rows("section,name,module,category,dtype,shape,bytes,count");
  const std::string none;
  const Json& s = d.at("summary");
  rows.add("verdict", s.at("verdict"), none, none, none, none, none, none);
  for (const char* name : {"peak_bytes", "low_bytes", "high_bytes", "limit_bytes", "margin_bytes", "headroom_bytes"})
    if (!s.at(name).is_null()) rows.add("summary", std::string(name), none, none, none, none, s.at(name), none);
  for (const char* name : {"requested_bytes", "allocated_bytes", "reserved_bytes", "process_bytes"})
    rows.add("counter", std::string(name), none, none, none, none, d.at("counters").at(name), none);
  for (const Json& p : d.at("breakdown"))
    rows.add("part", p.at("category"), none, p.at("category"), none, none, p.at("bytes"), none);
  for (const Json& p : d.at("phases"))
    rows.add("phase", p.at("phase"), none, none, none, none, p.at("allocated_bytes"), none);
  for (const auto& [list, section, member] :
       {std::array{"at_peak_by_module", "module", "module"}, std::array{"at_peak_by_op", "op", "op"},
        std::array{"at_peak_by_dtype", "dtype", "dtype"}})
    for (const Json& r : d.at(list))
      rows.add(std::string(section), r.at(member), none, none, none, none, r.at("bytes"), r.at("tensors"));
  for (const Json& c : d.at("alternatives").at("changes"))
    rows.add("change", c.at("flags"), none, c.at("verdict"), none, none, c.at("peak_bytes"), none);
  for (const Json& t : d.at("tensors_at_peak"))
    rows.add("tensor", t.at("name"), t.at("module"), t.at("category"), t.at("dtype"), shape_text(t.at("shape")),
             t.at("bytes"), 1);
  return rows.text();
}

std::string of_check(const Json& d) {
  Rows rows(
      "target,model,status,rule,code,rule_status,value_bytes,threshold_bytes,peak_bytes,baseline_bytes,delta_bytes,"
      "message");
  const std::string none;
  for (const Json& t : d.at("targets")) {
    if (const Json& e = t.at("error"); !e.is_null()) {
      rows.add(t.at("name"), t.at("model"), name_of(GateState::error), row_of(GateRule::error).name,
               row_of(GateRule::error).code, name_of(GateState::failed), none, none, none, none, none, e.at("message"));
      continue;
    }
    const Json& peak = t.at("report").at("summary").at("peak_bytes");
    Json base = nullptr, delta = nullptr;
    if (const Json& diff = t.at("diff"); !diff.is_null())
      base = diff.at("summary").at("base_bytes"), delta = diff.at("summary").at("delta_bytes");
    for (const Json& r : t.at("rules"))
      rows.add(t.at("name"), t.at("model"), t.at("status"), r.at("rule"), r.at("code"), r.at("status"),
               r.at("value_bytes"), r.at("threshold_bytes"), peak, base, delta, r.at("message"));
    if (t.at("rules").empty())
      rows.add(t.at("name"), t.at("model"), t.at("status"), none, none, none, none, none, peak, base, delta, none);
  }
  return rows.text();
}

std::string of_diff(const Json& d) {
  Rows rows("section,name,module,category,base_bytes,head_bytes,delta_bytes,state");
  const std::string none;
  const auto row = [&](const char* section, const Json& name, const Json& module, const Json& category, const Json& r) {
    rows.add(std::string(section), name, module, category, r.at("base_bytes"), r.at("head_bytes"), r.at("delta_bytes"),
             r.at("state"));
  };
  row("total", "peak", none, none, d.at("summary"));
  for (const Json& r : d.at("counters")) row("counter", r.at("counter"), none, none, r);
  for (const Json& r : d.at("parts")) row("part", r.at("category"), none, r.at("category"), r);
  for (const Json& r : d.at("modules")) row("module", r.at("module"), r.at("module"), none, r);
  for (const Json& r : d.at("ops")) row("op", r.at("op"), none, none, r);
  for (const Json& r : d.at("dtypes")) row("dtype", r.at("dtype"), none, none, r);
  for (const Json& r : d.at("tensors")) row("tensor", r.at("name"), r.at("module"), r.at("category"), r);
  return rows.text();
}

}  // namespace

std::string render_csv(const Json& document, const View&) {
  const std::string kind = document.value("kind", "report");
  return kind == "check" ? of_check(document) : kind == "diff" ? of_diff(document) : of_report(document);
}

}  // namespace memplan::cli
