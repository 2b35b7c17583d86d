// The answer at a glance: fits or not, the peak against the limit, and what the peak is made of.

function setupChips() {
  const s = doc.setup || {}, chips = [];
  const add = (label, value) => { if (value !== undefined && value !== null && value !== "" && value !== false) chips.push([label, String(value)]); };
  add("mode", s.mode);
  add("precision", s.precision);
  for (const d of s.dims || []) add(d.name, d.size + ({ assumed: " (assumed)", file: " (the file's)" }[d.origin] || ""));
  if (s.optimizer) add("optimizer", s.optimizer.kind + (s.optimizer.implementation && s.optimizer.implementation !== "auto" ? " (" + s.optimizer.implementation + ")" : ""));
  if (s.accumulate > 1) add("accumulate", s.accumulate);
  if ((s.checkpoint || []).length) add("checkpoint", s.checkpoint.join(", "));
  if (s.clip_grad_norm) add("clip", "gradient norm");
  if ((s.frozen || []).length) add("frozen", s.frozen.join(", "));
  if (s.attention && s.attention !== "auto") add("attention", s.attention);
  if (s.expandable_segments) add("allocator", "expandable segments");
  for (const words of [].concat(s.strategies || [])) if (!chips.some(([, value]) => value === words)) add("with", words);
  for (const [label, value] of Object.entries(s.parallel || {})) if (typeof value === "number" && value > 1) add(label, value);
  add("parameters", doc.input && doc.input.parameters ? shortCount(doc.input.parameters) : "");
  return el("ul", {class: "chips"}, chips.map(([label, value]) => el("li", null, el("span", {class: "muted"}, label + " "), value)));
}

function headlineText() {
  const s = summary, peak = size(s.peak_bytes);
  const range = s.low_bytes !== s.high_bytes ? " (" + size(s.low_bytes) + " – " + size(s.high_bytes) + ")" : "";
  if (!s.limit_bytes) return "The process needs " + peak + range + " as nvidia-smi shows it.";
  const over = s.peak_bytes - s.limit_bytes;
  return "Peak " + peak + range + " of " + size(s.limit_bytes) + (over > 0 ? ": over by " + size(over) + "." : ": " + size(-over) + " stay free.");
}

// One bar over the width: the parts of the peak, what stays free, and the limit as a line.
function partsBar() {
  const s = summary, parts = doc.breakdown || [];
  const full = Math.max(s.peak_bytes, s.limit_bytes || 0);
  const percent = bytes => (full > 0 ? bytes / full * 100 : 0) + "%";
  const bar = el("div", {class: "bar", role: "img", "aria-label": "Peak by kind: " + parts.filter(p => p.bytes > 0).map(p => kindOf(p.category).label + " " + size(p.bytes)).join(", ")});
  for (const k of ordered(parts)) if (k.bytes > 0) bar.append(el("span", {class: "part k-" + kindOf(k.category).key, css: {width: percent(k.bytes)}, title: kindOf(k.category).label + ": " + size(k.bytes)}));
  const frame = el("div", {class: "barframe"}, bar);
  if (s.limit_bytes) {
    frame.append(el("span", {class: "limit" + (s.limit_bytes / full > 0.8 ? " left" : ""), css: {left: percent(s.limit_bytes)}}, el("span", {class: "limitword"}, "limit " + size(s.limit_bytes))));
    if (s.margin_bytes && s.margin_bytes < s.limit_bytes) frame.append(el("span", {class: "margin", css: {left: percent(s.limit_bytes - s.margin_bytes), width: percent(s.margin_bytes)}, title: "margin " + size(s.margin_bytes)}));
  }
  return frame;
}

const ordered = parts => [...parts].sort((a, b) => KINDS.findIndex(k => k.name === a.category) - KINDS.findIndex(k => k.name === b.category));

const BASIS = {exact: "follows from the program", modelled: "from a model of the allocator or of ops with bounds", assumed: "a published or measured figure", calibrated: "from a measurement of yours"};

function partsTable() {
  const rows = ordered(doc.breakdown || []).filter(p => p.bytes !== 0);
  return el("table", {class: "parts"},
    el("thead", null, el("tr", null, el("th", {scope: "col"}, "Kind"), el("th", {scope: "col", class: "number"}, "Size"), el("th", {scope: "col", class: "number"}, "Share"), el("th", {scope: "col"}, "Basis"))),
    el("tbody", null, rows.map(p => el("tr", null, el("th", {scope: "row"}, swatch(p.category), kindOf(p.category).label), el("td", {class: "number", title: exact(p.bytes)}, size(p.bytes)),
      el("td", {class: "number muted"}, share(p.bytes, summary.peak_bytes)), el("td", {class: "muted", title: BASIS[p.basis] || ""}, p.basis)))),
    el("tfoot", null, el("tr", null, el("th", {scope: "row"}, "Whole process"), el("td", {class: "number", title: exact(summary.peak_bytes)}, size(summary.peak_bytes)), el("td", {class: "number muted"}, "100%"), el("td"))));
}

function figure(label, bytes, note, tone) {
  return el("div", {class: "figure" + (tone ? " " + tone : "")}, el("dt", null, label), el("dd", {title: bytes === null ? "" : exact(bytes)}, bytes === null ? "–" : size(bytes)), note ? el("dd", {class: "note"}, note) : null);
}

// PyTorch's counters of the first step and of the steady one.
function stepsTable() {
  const steps = (doc.steps || []).filter(s => s.step > 0);
  if (!steps.length) return null;
  const shown = steps.length > 1 ? [["step 1", steps[0]], ["step " + steps[steps.length - 1].step + ", steady", steps[steps.length - 1]]] : [["step 1", steps[0]]];
  const counters = ["requested", "allocated", "reserved", "process"];
  return el("div", null, el("h3", null, "Highest in each step"), el("table", null, el("thead", null, el("tr", null, el("th", {scope: "col"}, el("span", {class: "offscreen"}, "Counter")), shown.map(([name]) => el("th", {scope: "col", class: "number"}, name)))),
    el("tbody", null, counters.map(c => el("tr", null, el("th", {scope: "row"}, c), shown.map(([, s]) => el("td", {class: "number", title: exact(s.peak[c + "_bytes"])}, size(s.peak[c + "_bytes"]))))))));
}

function alsoEstimated() {
  const a = doc.alternatives || {}, facts = [], b = a.largest_batch;
  if (b) facts.push(b.batch > 0 ? el("li", null, "The largest batch that fits is ", el("strong", null, (b.at_least ? "at least " : "") + grouped(b.batch)), ", with a peak of " + size(b.peak_bytes) + ".") : el("li", null, "No batch fits: a batch of 1 needs ", el("strong", null, size(b.peak_bytes)), "."));
  if (a.inference) facts.push(el("li", null, "A forward pass alone needs ", el("strong", null, size(a.inference.peak_bytes)), ".", a.inference.verdict && summary.limit_bytes ? [" ", pill(a.inference.verdict)] : null));
  if ((a.cards || []).length) facts.push(el("li", null, "Smallest cards that fit: ", el("strong", null, a.cards.map(c => c.key).join(", ")), "."));
  return facts;
}

function verdictSection() {
  const also = alsoEstimated();
  const s = summary, input = doc.input || {}, device = doc.device || {}, c = doc.counters || {}, p = doc.peak || {};
  const v = VERDICTS[s.verdict];
  const name = String(input.path || "model").split("/").pop();
  const where = [p.step !== undefined && stepWord(p.step), p.phase, p.op].filter(Boolean).join(", ") + (p.module ? " in " + p.module : "");
  const head = el("div", {class: "verdicthead " + (s.verdict || "none")},
    el("div", {class: "mark", "aria-hidden": "true"}, v ? v.mark : "≈"),
    el("div", null, el("h1", null, v ? v.word : "Needs " + size(s.peak_bytes)), el("p", {class: "lead"}, headlineText())));
  const figures = el("dl", {class: "figures"},
    figure("Peak of the process", s.peak_bytes, "as nvidia-smi shows it", s.verdict),
    s.limit_bytes ? figure("Limit", s.limit_bytes, device.name || device.key) : null,
    s.limit_bytes ? figure(s.headroom_bytes < 0 ? "Missing" : "Stays free", Math.abs(s.headroom_bytes), "margin wanted " + size(s.margin_bytes || 0)) : null,
    figure("Reserved", c.reserved_bytes ?? null, "by PyTorch's allocator"), figure("Allocated", c.allocated_bytes ?? null, "max_memory_allocated()"), figure("Requested", c.requested_bytes ?? null, "before rounding"));
  return el("section", {id: "verdict", class: "card hero", tabindex: "-1", "aria-label": "Verdict"},
    el("p", {class: "file"}, el("strong", null, name), input.format ? el("span", {class: "muted"}, "  " + input.format) : null, device.given === false ? el("span", {class: "muted"}, "  no GPU was named; computed for " + device.key) : null),
    head, setupChips(), figures, partsBar(),
    el("div", {class: "sides"}, partsTable(), el("div", {class: "aside"}, el("h3", null, "Where the peak is"), el("p", null, where || "unknown"), s.out_of_memory_at ? [el("h3", null, "Where it stops on this card"), el("p", null, s.out_of_memory_at)] : null,
      stepsTable(), also.length ? [el("h3", null, "Also estimated"), el("ul", {class: "facts"}, also)] : null)));
}
