// What to change: every row was estimated again, none is a guess.

const shellWord = word => /^[\w@%+=:,./*-]+$/.test(word) ? word : "'" + String(word).replace(/'/g, "'\\''") + "'";

// The command of this report with flags added; those of the report that the new ones replace are left out.
function memplanCommand(flags) {
  const made = doc.command || {}, added = flags ? flags.split(/\s+/) : [];
  const replaced = new Set(added.filter(w => w.startsWith("--")).map(w => w.split("=")[0]));
  if (replaced.has("--amp")) replaced.add("--precision");
  const kept = [];
  for (let i = 0; i < (made.flags || []).length; ++i) {
    const word = made.flags[i], value = i + 1 < made.flags.length && !made.flags[i + 1].startsWith("--");
    if (!replaced.has(word.split("=")[0])) kept.push(word, ...(value ? [made.flags[i + 1]] : []));
    if (value) ++i;
  }
  return ["memplan", made.model || (doc.input || {}).path || "MODEL", ...kept].map(shellWord).concat(added).join(" ");
}

const MOVES = {smallest: "smallest change", fastest: "fastest that fits"};
const FRAMEWORKS = {pytorch: "PyTorch", hf: "Hugging Face Trainer", accelerate: "Accelerate", deepspeed: "DeepSpeed", torchtitan: "torchtitan", lightning: "Lightning"};

// The search's setups first, then what the estimate itself tried.
function moves() {
  const list = (doc.suggestions || []).map(m => {
    const times = m.time_per_mille > 0 ? m.time_per_mille / 1000 : 0;
    const cost = !times || Math.abs(times - 1) < .005 ? "about as fast" : times > 1 ? times.toFixed(times < 10 ? 2 : 0) + "× the time per sample" : times.toFixed(2) + "× the time per sample";
    return {flags: m.flags, kind: MOVES[m.kind], peak: m.peak_bytes, verdict: m.verdict, cost, why: (m.cautions || []).join("; "), settings: m.settings};
  });
  for (const m of (doc.alternatives || {}).changes || []) if (!list.some(known => known.flags === m.flags)) list.push({flags: m.flags, peak: m.peak_bytes, verdict: m.verdict, settings: m.settings});
  return list;
}

function settingsOf(move) {
  const blocks = [];
  const texts = Object.entries(move.settings || {}).filter(([, text]) => typeof text === "string" && text);
  if (move.flags) texts.push(["memplan", memplanCommand(move.flags)]);
  const panes = texts.map(([name, text], i) => el("div", {class: "pane", "data-pane": name, hidden: i > 0}, code(text.trimEnd())));
  if (texts.length > 1) blocks.push(choices("Settings for", texts.map(([name]) => [name, FRAMEWORKS[name] || name]), texts[0][0], v => { for (const p of panes) p.hidden = p.dataset.pane !== v; }));
  return blocks.concat(panes);
}

function changesSection() {
  const list = moves(), s = summary;
  if (!list.length) return null;
  const full = Math.max(s.peak_bytes, s.limit_bytes || 0, ...list.map(m => m.peak || 0));
  const rows = list.map((m, i) => {
    const details = settingsOf(m);
    const percent = bytes => bytes / full * 100 + "%";
    return el("li", {class: "move"},
      el("span", {class: "rank"}, String(i + 1)),
      el("div", {class: "movehead"}, el("code", {class: "movetitle"}, m.flags || ""), m.kind ? el("span", {class: "kind"}, m.kind) : null, m.verdict ? pill(m.verdict) : null),
      el("div", {class: "movefigures"}, el("strong", null, size(m.peak)), el("span", {class: "muted"}, "  " + (m.peak <= s.peak_bytes ? "−" + size(s.peak_bytes - m.peak) : "+" + size(m.peak - s.peak_bytes)))),
      el("div", {class: "movebar", role: "img", "aria-label": "peak " + size(m.peak)}, el("span", {class: "fill " + (m.verdict || ""), css: {width: percent(m.peak)}}), s.limit_bytes ? el("span", {class: "tick", css: {left: percent(s.limit_bytes)}}) : null),
      m.cost || m.why ? el("p", {class: "muted"}, [m.cost, m.why].filter(Boolean).join("; ")) : null,
      details.length ? el("details", null, el("summary", null, "Settings to paste"), details) : null);
  });
  return section("changes", "What to change", "Each line was estimated again with that change. The bar is the new peak, the tick the limit; time is a model of the card's arithmetic and memory speed.", el("ol", {class: "moves"}, rows));
}
