// What a gate found, and what moved since a baseline: of a report, of a comparison, and of all targets of a gate.

const STATES = {passed: ["fits", "✓", "Passes"], warned: ["tight", "!", "Warns"], failed: ["no-fit", "✕", "Fails"], error: ["no-fit", "✕", "Cannot be checked"], ignored: ["", "–", "Ignored"], new: ["", "+", "New"]};
const statePill = state => { const [tone, mark, word] = STATES[state] || ["", "", state]; return el("span", {class: "pill " + tone}, el("span", {"aria-hidden": "true"}, mark + " "), word); };
const signed = n => n === 0 ? "0 B" : (n > 0 ? "+" : "−") + size(Math.abs(n));
const tone = n => n > 0 ? "worse" : n < 0 ? "better" : "muted";
const percentOf = s => s.change_percent === null || s.delta_bytes === 0 ? "" : " (" + (s.change_percent > 0 ? "+" : "") + s.change_percent.toFixed(1) + " %)";

const ruleList = rules => el("ul", {class: "rules"}, rules.map(r => el("li", null, statePill(r.status), el("span", null, el("strong", null, r.rule), " ", el("code", null, r.code), " ", r.message, r.reason ? "; ignored until " + r.expires + ": " + r.reason : "",
  el("span", {class: "muted"}, "  " + r.origin)))));

function fixBox(fix, command) {
  if (!fix) return null;
  const lines = (fix.configuration || []).join("\n");
  return el("div", {class: "fix"}, el("h3", null, "Smallest change that passes"), el("p", null, el("code", {class: "movetitle"}, fix.flags), "  peak ", el("strong", null, size(fix.peak_bytes)), fix.saves_bytes ? ", " + size(fix.saves_bytes) + " less" : "", " ", fix.verdict ? pill(fix.verdict) : null),
    (fix.cautions || []).length ? el("p", {class: "muted"}, "It changes the training: " + fix.cautions.join("; ")) : null, command ? code(command) : lines ? code(lines) : null);
}

function gateSection() {
  const gate = doc.gate || {};
  if (!gate.rules) return null;
  return section("gate", "The gate", "The limits and the baseline that were given with the command; each rule was asked of these figures.", gate.rules.length ? null : el("p", null, statePill(gate.status)), ruleList(gate.rules), fixBox(gate.fix, gate.fix ? memplanCommand(gate.fix.flags) : ""));
}

// Rows of repeated layers stand together, as "h.*.mlp" with their number. Modules differ by more than an index; tensors of
// an exporter are numbered through.
const ofLayers = name => name.split(".").map(part => /^\d+$/.test(part) ? "*" : part).join(".");
const ofTensors = name => name.replace(/(?<=[._])\d+(?![\w])/g, "*");
function mergedRows(list, nameOf, fold) {
  const groups = new Map();
  for (const r of list) {
    const name = nameOf(r), key = fold(name);
    const g = groups.get(key) || {name, count: 0, base: 0, head: 0, delta: 0, state: r.state};
    if (g.count) g.name = key;
    if (g.state !== r.state) g.state = "changed";
    ++g.count, g.base += r.base_bytes, g.head += r.head_bytes, g.delta += r.delta_bytes;
    groups.set(key, g);
  }
  return [...groups.values()].sort((a, b) => Math.abs(b.delta) - Math.abs(a.delta));
}

function diffTable(title, list, nameOf, most, fold = ofLayers) {
  const rows = mergedRows((list || []).filter(r => r.delta_bytes !== 0 || r.state === "new" || r.state === "gone"), nameOf, fold);
  if (!rows.length) return null;
  const row = r => el("tr", null, el("th", {scope: "row"}, r.name, r.count > 1 ? el("span", {class: "times"}, "×" + r.count) : null), el("td", {class: "number " + tone(r.delta), title: exact(r.delta)}, signed(r.delta)), el("td", {class: "number", title: exact(r.base)}, r.state === "new" ? "–" : size(r.base)),
    el("td", {class: "number", title: exact(r.head)}, r.state === "gone" ? "–" : size(r.head)), el("td", {class: "muted"}, r.state === "new" || r.state === "gone" ? r.state : ""));
  return el("div", null, el("h3", null, title), el("div", {class: "scroll"}, el("table", {class: "plaintable diff"}, el("thead", null, el("tr", null, el("th", {scope: "col"}, el("span", {class: "offscreen"}, title)), ["change", "base", "now"].map(w => el("th", {scope: "col", class: "number"}, w)), el("th", {scope: "col"}, el("span", {class: "offscreen"}, "state")))),
    el("tbody", null, rows.slice(0, most).map(row)))), rows.length > most ? el("p", {class: "muted"}, plural(rows.length - most, "more row") + " are in the JSON report.") : null);
}

const setupTable = changes => changes.length ? el("div", null, el("h3", null, "The setup differs"), el("ul", {class: "facts"}, changes.map(c => el("li", null, c.name + ": ", el("code", null, c.base ?? "not set"), " → ", el("code", null, c.head ?? "not set"))))) : null;

function diffParts(d, most = 15) {
  const kind = r => kindOf(r.category).label, tensor = r => (r.module && !r.name.includes(r.module) ? r.module + " " : "") + r.name + " – " + r.category;
  const tables = [diffTable("By kind", d.parts, kind, most), diffTable("By module", d.modules, r => r.module || "(outside modules)", most), diffTable("By tensor", d.tensors, tensor, most, ofTensors)].filter(Boolean);
  return [setupTable(d.setup || []), tables.length ? el("div", {class: "tables"}, tables) : null];
}

const diffLead = (s, state) => el("p", {class: "lead"}, state ? [statePill(state), " "] : null, "Peak " + size(s.base_bytes) + " → " + size(s.head_bytes) + ": ", el("strong", {class: tone(s.delta_bytes)}, signed(s.delta_bytes) + percentOf(s)));

function diffSection() {
  const d = doc.diff;
  if (!d) return null;
  return section("diff", "Against the baseline", "What moved at the peak since the baseline, the largest change first.", diffLead(d.summary), d.summary.model === "another graph" ? el("p", null, "The models differ in their calls or parameters.") : null, diffParts(d));
}

// A page of its own for memplan diff …
function comparisonSections() {
  const s = doc.summary, side = (word, d) => el("div", null, el("dt", null, word), el("dd", null, el("code", null, [d.model, ...(d.flags || [])].join(" ")), d.verdict ? [" ", pill(d.verdict)] : null));
  const head = el("section", {id: "verdict", class: "card hero", tabindex: "-1", "aria-label": "Comparison"}, el("div", {class: "verdicthead " + (s.delta_bytes > 0 ? "no-fit" : s.delta_bytes < 0 ? "fits" : "none")}, el("div", {class: "mark", "aria-hidden": "true"}, s.delta_bytes > 0 ? "▲" : s.delta_bytes < 0 ? "▼" : "="),
    el("div", null, el("h1", null, s.delta_bytes > 0 ? "Peak grows by " + size(s.delta_bytes) : s.delta_bytes < 0 ? "Peak falls by " + size(-s.delta_bytes) : "Peak stays the same"), diffLead(s))), el("dl", {class: "facts"}, side("base", doc.base), side("head", doc.head)));
  const moved = diffParts(doc, 30).filter(Boolean);
  return [head, section("diff", "What moved", "At the peak, the largest change first.", s.model === "another graph" ? el("p", null, "The models differ in their calls or parameters.") : null, moved.length ? moved : el("p", null, "Nothing moved."))];
}

// … and for memplan check.
function checkSections() {
  const s = doc.summary, bad = s.failed + s.errors;
  const title = bad ? (s.targets === 1 ? "The target" : bad + " of " + s.targets + " targets") + (s.errors && !s.failed ? " cannot be checked" : bad === 1 ? " fails" : " fail") : s.targets === 1 ? "The target passes" : "All " + s.targets + " targets pass";
  const rows = doc.targets.map((t, i) => {
    const r = t.report, d = t.diff ? t.diff.summary : null;
    return el("tr", null, el("th", {scope: "row"}, el("a", {href: "#target-" + i}, t.name)), el("td", {class: "number " + tone(d ? d.delta_bytes : 0)}, d ? signed(d.delta_bytes) : "–"), el("td", {class: "number roomy"}, d ? size(d.base_bytes) : "–"), el("td", {class: "number"}, r ? size(r.summary.peak_bytes) : "–"), el("td", {class: "roomy"}, r && r.device.given ? r.device.key : "–"), el("td", null, statePill(t.status)));
  });
  const head = el("section", {id: "verdict", class: "card hero", tabindex: "-1", "aria-label": "Gate"}, el("p", {class: "file"}, el("strong", null, doc.config || ""), el("span", {class: "muted"}, doc.baseline && doc.baseline.present ? "  baseline " + doc.baseline.path : "  no baseline")),
    el("div", {class: "verdicthead " + (bad ? "no-fit" : s.warned ? "tight" : "fits")}, el("div", {class: "mark", "aria-hidden": "true"}, bad ? "✕" : s.warned ? "!" : "✓"), el("div", null, el("h1", null, title), s.warned ? el("p", {class: "lead"}, plural(s.warned, "target") + " with a warning") : null)),
    el("div", {class: "scroll"}, el("table", {class: "plaintable full"}, el("thead", null, el("tr", null, el("th", {scope: "col"}, "target"), el("th", {scope: "col", class: "number"}, "change"), el("th", {scope: "col", class: "number roomy"}, "base"), el("th", {scope: "col", class: "number"}, "now"), el("th", {scope: "col", class: "roomy"}, "GPU"), el("th", {scope: "col"}, "status"))), el("tbody", null, rows))));
  const targets = doc.targets.map((t, i) => {
    const parts = t.error ? [el("p", null, t.error.where ? el("code", null, t.error.where) : null, " " + t.error.message + ". " + t.error.hint)]
      : [t.diff ? diffLead(t.diff.summary, t.status) : null, ruleList(t.rules), fixBox(t.fix, ""), t.message ? el("p", null, t.message) : null, t.diff && (t.diff.summary.delta_bytes || t.diff.setup.length) ? el("details", {open: t.status !== "passed"}, el("summary", null, "What moved"), diffParts(t.diff, 8)) : null];
    // Each rule brings the badge of its own; a lone one would say the same again.
    return section("target-" + i, t.name, t.model, (t.rules || []).length || (t.diff && !t.error) ? null : el("p", null, statePill(t.status)), parts);
  });
  return [head, ...targets];
}
