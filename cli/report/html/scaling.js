// The peak against batch and sequence, each point an estimate of its own; and what other cards say to the same step.

function curveChart(curve) {
  const limit = summary.limit_bytes || 0, points = curve.points, W = 520, H = 260, left = 64, right = 18, top = 16, bottom = 40;
  const highest = Math.max(...points.map(p => p.peak_bytes)), lowest = 0;
  const ceiling = Math.max(highest, limit && limit < highest * 2.5 ? limit : 0) * 1.08;
  const logs = points.map(p => Math.log2(p.size)), from = logs[0], to = logs[logs.length - 1];
  const x = s => left + (W - left - right) * (to > from ? (Math.log2(s) - from) / (to - from) : .5), y = b => top + (H - top - bottom) * (1 - b / ceiling);
  const path = points.map((p, i) => (i ? "L" : "M") + x(p.size).toFixed(1) + " " + y(p.peak_bytes).toFixed(1)).join("");
  const picture = svg("svg", {class: "curve", viewBox: "0 0 " + W + " " + H, role: "img", "aria-label": "Peak against " + curve.dimension + ": " + points.map(p => p.size + ": " + size(p.peak_bytes)).join(", ")});
  for (const t of gigabyteTicks(lowest, ceiling)) picture.append(svg("line", {class: "grid", x1: left, x2: W - right, y1: y(t.v), y2: y(t.v)}), svg("text", {class: "axis", x: left - 8, y: y(t.v) + 4, "text-anchor": "end"}, t.label));
  let last = -Infinity;
  for (const p of points) if (x(p.size) - last > 34) { picture.append(svg("text", {class: "axis", x: x(p.size), y: H - bottom + 18, "text-anchor": "middle"}, grouped(p.size))); last = x(p.size); }
  picture.append(svg("text", {class: "axis name", x: (left + W - right) / 2, y: H - 6, "text-anchor": "middle"}, curve.dimension));
  if (limit && limit <= ceiling) picture.append(svg("rect", {class: "over", x: left, y: top, width: W - left - right, height: Math.max(0, y(limit) - top)}), svg("line", {class: "limitline", x1: left, x2: W - right, y1: y(limit), y2: y(limit)}), svg("text", {class: "limittext", x: W - right, y: y(limit) - 5, "text-anchor": "end"}, "limit " + size(limit)));
  picture.append(svg("path", {class: "line", d: path}));
  for (const p of points) {
    const dot = svg("circle", {class: "dot " + (limit ? p.verdict : "") + (p.size === curve.here ? " here" : ""), cx: x(p.size), cy: y(p.peak_bytes), r: p.size === curve.here ? 7 : 5, tabindex: "0", role: "img", "aria-label": curve.dimension + " " + p.size + ": " + size(p.peak_bytes)});
    const show = e => { const box = dot.getBoundingClientRect(); showTip(box.right, box.top, el("div", null, el("strong", null, curve.dimension + " " + grouped(p.size) + (p.size === curve.here ? " (this setup)" : "")), el("p", null, size(p.peak_bytes) + ", requested " + size(p.requested_bytes)), limit ? pill(p.verdict) : null)); };
    for (const event of ["mouseenter", "focus"]) dot.addEventListener(event, show);
    for (const event of ["mouseleave", "blur"]) dot.addEventListener(event, hideTip);
    picture.append(dot);
  }
  const table = el("details", null, el("summary", null, "As a table"), el("table", {class: "plaintable"}, el("thead", null, el("tr", null, el("th", {scope: "col", class: "number"}, curve.dimension), el("th", {scope: "col", class: "number"}, "peak"), el("th", {scope: "col"}, "verdict"))),
    el("tbody", null, points.map(p => el("tr", null, el("td", {class: "number"}, grouped(p.size)), el("td", {class: "number", title: exact(p.peak_bytes)}, size(p.peak_bytes)), el("td", null, limit ? pill(p.verdict) : "–"))))));
  return el("figure", {class: "curvebox"}, el("figcaption", null, "Peak against ", el("strong", null, curve.dimension)), picture, table);
}

function scalingSection() {
  const curves = (doc.scaling || []).filter(c => c.points.length > 1);
  if (!curves.length) return null;
  return section("scaling", "If it were larger or smaller", "Every point is an estimate of its own; the ringed one is this setup. Sizes are doubled from point to point.", el("div", {class: "curves"}, curves.map(curveChart)));
}

function cardsSection() {
  const list = (doc.alternatives && doc.alternatives.devices) || [];
  if (!list.length) return null;
  const full = 2.5 * Math.max(...list.map(c => c.peak_bytes));  // much larger cards end at the edge
  const firstFit = list.findIndex(c => c.verdict === "fits"), near = i => firstFit < 0 ? i >= list.length - 8 : i >= firstFit - 4 && i < firstFit + 8;
  const own = doc.device && doc.device.given ? doc.device.key : null;
  const rows = list.map((c, i) => {
    const percent = bytes => Math.min(100, bytes / full * 100) + "%";
    return el("tr", {class: (near(i) || c.key === own ? "" : "more ") + (c.key === own ? "own" : "")}, el("th", {scope: "row"}, c.name || c.key, el("span", {class: "muted key"}, c.key)), el("td", {class: "number"}, size(c.usable_bytes)), el("td", {class: "number"}, size(c.peak_bytes)),
      el("td", {class: "cardbar wide"}, el("span", {class: "total", css: {width: percent(c.usable_bytes)}}), el("span", {class: "need " + c.verdict, css: {width: percent(c.peak_bytes)}})), el("td", null, pill(c.verdict)));
  });
  const table = el("table", {class: "cards"}, el("thead", null, el("tr", null, el("th", {scope: "col"}, "GPU"), el("th", {scope: "col", class: "number"}, "Has"), el("th", {scope: "col", class: "number"}, "Needs"), el("th", {scope: "col", class: "wide"}, ""), el("th", {scope: "col"}, "Verdict"))), el("tbody", null, rows));
  const all = el("button", {type: "button", class: "ghost", "aria-expanded": "false", onclick: () => { const open = table.classList.toggle("all"); all.setAttribute("aria-expanded", String(open)); all.textContent = open ? "Show fewer" : "Show all " + list.length; }}, "Show all " + list.length);
  return section("gpus", "On other GPUs", "The same step on every card that memplan knows, by size. What it needs differs a little: kernels, scratch memory and the CUDA context differ.", table, rows.some(r => r.classList.contains("more")) ? all : null);
}
