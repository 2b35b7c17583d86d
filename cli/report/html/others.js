// Ranks, comparison with a baseline, and what the figures rest on.

function ranksSection() {
  const list = doc.ranks || [];
  if (!list.length) return null;
  const peakOf = r => r.peak_bytes ?? (r.summary && r.summary.peak_bytes) ?? (r.peak && r.peak.process_bytes) ?? (r.counters && r.counters.process_bytes) ?? 0;
  const full = Math.max(summary.limit_bytes || 0, ...list.map(peakOf)), worst = Math.max(...list.map(peakOf));
  const label = (r, i) => r.name || r.label || (r.ranks !== undefined ? "ranks " + r.ranks : [r.stage !== undefined && r.stage !== null ? "stage " + r.stage : "", r.rank !== undefined && r.rank !== null ? "rank " + r.rank : ""].filter(Boolean).join(", ") || "rank " + i);
  const rows = list.map((r, i) => el("tr", {class: peakOf(r) === worst ? "own" : ""}, el("th", {scope: "row"}, String(label(r, i)), r.count > 1 ? el("span", {class: "times"}, "×" + r.count) : null), el("td", {class: "number", title: exact(peakOf(r))}, size(peakOf(r))),
    el("td", {class: "cardbar"}, (r.breakdown || []).length ? el("span", {class: "stack", css: {width: peakOf(r) / full * 100 + "%"}}, ordered(r.breakdown).map(p => p.bytes > 0 ? el("span", {class: "k-" + kindOf(p.category).key, css: {width: p.bytes / peakOf(r) * 100 + "%"}, title: kindOf(p.category).label + " " + size(p.bytes)}) : null))
      : el("span", {class: "need " + (r.verdict || ""), css: {width: peakOf(r) / full * 100 + "%"}}), summary.limit_bytes ? el("span", {class: "tick", css: {left: summary.limit_bytes / full * 100 + "%"}}) : null), el("td", null, r.verdict ? pill(r.verdict) : "")));
  return section("ranks", "Ranks and stages", "One bar per kind of rank; the verdict is that of the heaviest one.", el("table", {class: "cards ranks"}, el("tbody", null, rows)));
}

function basisSection() {
  const list = (title, items) => items && items.length ? el("div", null, el("h3", null, title), el("ul", {class: "facts"}, items.map(i => el("li", null, i)))) : null;
  const d = doc.device || {}, input = doc.input || {}, tool = doc.tool || {};
  const provenance = el("dl", {class: "facts"}, ...[["File", input.path], ["SHA-256", input.sha256], ["Format", input.format], ["Device", d.explanation], ["Source of its size", d.source], ["memplan", tool.version], ["Schema of this report", doc.schema_version]].filter(([, v]) => v).map(([k, v]) => el("div", null, el("dt", null, k), el("dd", null, String(v)))));
  return section("basis", "What this rests on", null,
    list("Assumed", doc.assumptions), list("Noted", (doc.warnings || []).map(w => [w.message, " ", el("code", null, w.code)])),
    list("Not modelled", (doc.unmodelled || []).map(u => plural(u.count, "call") + " of " + u.op + ": " + u.handling + (u.widened_by_bytes ? ", widens the range by " + size(u.widened_by_bytes) : ""))),
    list("Recovered from the file", (doc.recovered || []).map(r => r.count + " × " + r.op + " from " + r.from)),
    list("How near estimates are", doc.accuracy),
    el("h3", null, "Words"), el("dl", {class: "facts"}, [["Requested", "what the program asked for"], ["Allocated", "the blocks that it got for that: torch.cuda.max_memory_allocated()"], ["Reserved", "what PyTorch's allocator took from the driver, free blocks included"],
      ["Process", "reserved, the CUDA context and libraries: what nvidia-smi shows, and what the verdict uses"]].map(([k, v]) => el("div", null, el("dt", null, k), el("dd", null, v)))),
    el("h3", null, "Where it comes from"), provenance, el("h3", null, "Again"), code(memplanCommand("")),
    el("div", {class: "tools"}, el("button", {type: "button", class: "ghost", onclick: () => save("memplan-report.json", JSON.stringify(doc) + "\n")}, "Save the data as JSON")));
}

const keysHelp = () => el("details", {class: "keys"}, el("summary", null, "Keyboard"), el("dl", {class: "facts"}, [["/", "search the tensors"], ["t", "light or dark"], ["← →", "move in the chart, the map and the modules"], ["+ − 0", "zoom the chart; 0 shows everything"], ["p", "to the peak"], ["Enter", "pin the chart, open a row, look into a module"], ["Esc", "step back"]].map(([k, v]) => el("div", null, el("dt", null, el("kbd", null, k)), el("dd", null, v)))));
