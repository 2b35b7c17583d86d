// Memory over the run: kinds stacked up to what nvidia-smi shows, phases as bands, the limit as a line. Hovering (or the
// arrow keys) shows the tensors that are alive there.

// Rows of the chart: x, then the kinds from the top of the stack to its bottom, as Dygraphs stacks the last one first.
function chartColumns() {
  const kinds = KINDS.filter(k => k.name === "context" || k.name === "rounding" || k.name === "cached" || T.by_category[k.name]).reverse();
  const rows = T.at.map((event, i) => {
    const row = [event];
    for (const k of kinds) {
      if (k.name === "context") row.push(T.context_bytes);
      else if (k.name === "rounding") row.push(Math.max(0, T.allocated_bytes[i] - T.requested_bytes[i]));
      else if (k.name === "cached") row.push(Math.max(0, T.reserved_bytes[i] - T.allocated_bytes[i]));
      else row.push(T.by_category[k.name][i]);
    }
    return row;
  });
  const last = rows[rows.length - 1];
  if (last && last[0] < T.events) rows.push([T.events, ...last.slice(1)]);  // the last level has a width, too
  return {kinds, rows};
}

// Its legend writes styles into the page, which the content security policy forbids; the page has its own.
if (typeof Dygraph !== "undefined") Dygraph.PLUGINS = Dygraph.PLUGINS.filter(plugin => plugin !== Dygraph.Plugins.Legend);

function gigabyteTicks(low, high) {
  // Round figures in binary units: 1, 2, 4, 5 … times a power.
  const unit = high >= 2 ** 40 ? 2 ** 40 : high >= 2 ** 30 ? 2 ** 30 : high >= 2 ** 20 ? 2 ** 20 : 1024;
  const rough = (high - low) / unit / 5, power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map(m => m * power).find(m => m >= rough) || rough || 1;
  const ticks = [], name = {[2 ** 40]: "TiB", [2 ** 30]: "GiB", [2 ** 20]: "MiB", 1024: "KiB"}[unit];
  for (let v = Math.ceil(low / unit / step) * step; v * unit <= high; v += step) ticks.push({v: v * unit, label: +v.toFixed(6) + " " + name});
  return ticks;
}

function timelineSection() {
  if (!T || !T.at.length || typeof Dygraph === "undefined") return null;
  const {kinds, rows} = chartColumns();
  const process = i => T.context_bytes + T.reserved_bytes[i];
  const highest = T.reserved_bytes.reduce((a, b) => Math.max(a, b), 0) + T.context_bytes;
  const limit = summary.limit_bytes || 0;
  const limitShown = limit > 0 && limit < highest * 2.2;
  const ceiling = Math.max(highest, limitShown ? limit : 0) * 1.08;
  const steps = [...new Set(T.spans.map(s => s.step))].filter(s => s > 0);
  const windowOf = step => {
    const own = T.spans.filter(s => s.step === step);
    return own.length ? [own[0].begin, own[own.length - 1].end] : [0, T.events];
  };
  const peakStep = placeOf(T.peak_event).step;
  const whole = [0, T.events];
  let view = peakStep > 0 ? windowOf(peakStep) : whole, at = T.peak_event, pinned = false, marked = null, graph = null;

  const box = el("div", {class: "chart", tabindex: "0", role: "application", "aria-label": "Memory over the run. Arrow keys move, plus and minus zoom, 0 shows everything, p goes to the peak, Enter pins."});
  const frame = el("div", {class: "chartframe"}, box);
  const panel = el("div", {class: "live", "aria-live": "polite"});
  const range = choices("Part of the run", [...steps.map(s => [String(s), "Step " + s]), ["whole", "Whole run"]], peakStep > 0 ? String(peakStep) : "whole", v => show(v === "whole" ? whole : windowOf(+v)));

  function show(next) {
    const least = Math.min(8, T.events);
    let [a, b] = next;
    if (b - a < least) b = a + least;
    if (b > T.events) { a -= b - T.events; b = T.events; }
    view = [Math.max(0, a), b];
    graph.updateOptions({dateWindow: view});
  }

  // Lines and words over the areas; Dygraphs calls this for every drawing.
  const overlay = {
    toString: () => "memplan-overlay",
    activate: () => ({
      didDrawChart: e => {
        const g = e.dygraph, c = e.drawingContext, area = g.getArea();
        c.save();
        c.font = "600 11px system-ui, sans-serif";
        c.textBaseline = "top";
        for (const s of T.spans) {
          const from = Math.max(g.toDomXCoord(s.begin), area.x), to = Math.min(g.toDomXCoord(s.end), area.x + area.w);
          if (to <= from) continue;
          c.strokeStyle = variable("--phase-line");
          c.lineWidth = 1;
          if (from > area.x + 1) { c.beginPath(); c.moveTo(Math.round(from) + .5, area.y); c.lineTo(Math.round(from) + .5, area.y + area.h); c.stroke(); }
          c.fillStyle = variable("--phase-" + s.phase) || variable("--muted");
          c.fillRect(from, area.y, Math.max(1, to - from - 1), 3);
          const word = s.step === 0 ? "set-up" : s.phase;
          if (c.measureText(word).width + 10 < to - from) { c.fillStyle = variable("--muted"); c.fillText(word, from + 5, area.y + 8); }
        }
        if (marked !== null) {
          const from = g.toDomXCoord(tensors.born[marked]), to = tensors.died[marked] < 0 ? area.x + area.w : g.toDomXCoord(tensors.died[marked]);
          c.fillStyle = variable("--mark");
          c.fillRect(Math.max(from, area.x), area.y, Math.max(2, Math.min(to, area.x + area.w) - Math.max(from, area.x)), area.h);
        }
        const peakX = g.toDomXCoord(T.peak_event);
        if (peakX >= area.x && peakX <= area.x + area.w) {
          c.strokeStyle = variable("--text"); c.setLineDash([2, 3]); c.beginPath(); c.moveTo(peakX, area.y + 5); c.lineTo(peakX, area.y + area.h); c.stroke(); c.setLineDash([]);
          c.fillStyle = variable("--text"); c.textAlign = peakX > area.x + area.w - 60 ? "right" : "left"; c.fillText("peak", peakX + (c.textAlign === "right" ? -4 : 4), area.y + (limitShown && Math.abs(g.toDomYCoord(limit) - area.y - 36) < 16 ? 58 : 28)); c.textAlign = "left";
        }
        if (limitShown) {
          const y = Math.round(g.toDomYCoord(limit)) + .5;
          c.strokeStyle = variable("--limit"); c.lineWidth = 1.5; c.setLineDash([6, 4]); c.beginPath(); c.moveTo(area.x, y); c.lineTo(area.x + area.w, y); c.stroke(); c.setLineDash([]);
          const word = "limit " + size(limit);
          c.textAlign = "right"; c.fillStyle = variable("--card"); c.globalAlpha = .8; c.fillRect(area.x + area.w - c.measureText(word).width - 8, y + 3, c.measureText(word).width + 8, 15); c.globalAlpha = 1;
          c.fillStyle = variable("--limit"); c.fillText(word, area.x + area.w - 4, y + 5);
        }
        c.restore();
      },
    }),
  };

  function draw() {
    if (graph) graph.destroy();
    graph = new Dygraph(box, rows, {
      labels: ["event", ...kinds.map(k => k.name)], colors: kinds.map(k => colour(k.name)), stackedGraph: true, stepPlot: true, fillAlpha: .88, strokeWidth: .6, dateWindow: view,
      valueRange: [0, ceiling], highlightCircleSize: 0, gridLineColor: variable("--grid"), gridLineWidth: 1, axisLineColor: variable("--line"),
      axes: {y: {ticker: (low, high) => gigabyteTicks(low, high), axisLabelWidth: 64, axisLabelFontSize: 12}, x: {drawGrid: false, axisLabelFontSize: 12, pixelsPerLabel: 90, axisLabelFormatter: v => grouped(Math.round(v))}},
      plugins: [overlay], xlabel: "allocations and frees, in their order", xLabelHeight: 18, animatedZooms: false, xRangePad: 0, panEdgeFraction: 0,
      highlightCallback: (e, x, points, row) => { if (!pinned && row >= 0) { at = rows[Math.min(row, T.at.length - 1)][0]; requestAnimationFrame(live); } },
      clickCallback: (e, x) => { pinned = !pinned; at = T.at[Math.max(0, lastAtMost(T.at, x))]; live(); },
      zoomCallback: (a, b) => { view = [Math.max(0, a), Math.min(T.events, b)]; },
    });
  }

  const cursor = el("div", {class: "cursor", "aria-hidden": "true"});
  frame.append(cursor);
  function live() {
    const row = Math.max(0, lastAtMost(T.at, at)), place = placeOf(at), set = liveSet(at, 64), alike = foldLive(set.best, at).slice(0, 10);
    const x = graph.toDomXCoord(at), area = graph.getArea();
    cursor.hidden = x < area.x || x > area.x + area.w;
    cursor.style.left = x + "px";
    cursor.style.height = area.h + "px";
    const most = alike.length ? alike[0].bytes : 1, more = set.count - alike.reduce((sum, g) => sum + g.count, 0);
    panel.replaceChildren(
      el("h3", null, at === T.peak_event ? "Alive at the peak" : "Alive here", pinned ? el("span", {class: "pin"}, "pinned") : null),
      el("p", {class: "muted where"}, placeText(at) || "before the first op"),
      el("dl", {class: "small"}, el("div", null, el("dt", null, "process"), el("dd", null, size(process(row)))), el("div", null, el("dt", null, "allocated"), el("dd", null, size(T.allocated_bytes[row]))), el("div", null, el("dt", null, "requested"), el("dd", null, size(T.requested_bytes[row])))),
      el("ol", {class: "lives"}, alike.map(({i, count, bytes}) => el("li", {title: tensors.reason(i) || ""},
        el("span", {class: "livename"}, swatch(tensors.kindName(i)), middle(tensorWord(i)), count > 1 ? el("span", {class: "times"}, "×" + count) : null), el("span", {class: "number"}, size(bytes)),
        el("span", {class: "livebar k-" + kindOf(tensors.kindName(i)).key, css: {width: Math.max(1, bytes / most * 100) + "%"}})))),
      el("p", {class: "muted"}, more > 0 ? "and " + grouped(more) + " more" : "", tensors.of > tensors.count ? " (of the " + grouped(tensors.count) + " largest of " + plural(tensors.of, "tensor") + ")" : ""));
  }

  const move = rowsFurther => {
    const row = Math.min(T.at.length - 1, Math.max(0, lastAtMost(T.at, at) + rowsFurther));
    at = T.at[row];
    if (at < view[0] || at > view[1]) show([at - (view[1] - view[0]) / 2, at + (view[1] - view[0]) / 2]);
    live();
  };
  const zoom = factor => { const half = (view[1] - view[0]) / 2 * factor; show([Math.max(0, at - half), Math.min(T.events, at + half)]); live(); };
  box.addEventListener("keydown", e => {
    const keys = {ArrowRight: () => move(e.shiftKey ? 20 : 1), ArrowLeft: () => move(e.shiftKey ? -20 : -1), "+": () => zoom(.5), "=": () => zoom(.5), "-": () => zoom(2), "0": () => { range.press("whole"); show(whole); live(); },
                  p: () => { at = T.peak_event; move(0); }, Enter: () => { pinned = !pinned; live(); }, Escape: () => { pinned = false; live(); }};
    if (!keys[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    keys[e.key]();
  });

  timeline = {
    // Shows the life of a tensor as a band over the chart.
    mark: i => {
      marked = i;
      if (i !== null && !pinned) at = tensors.born[i];
      if (i !== null && (tensors.born[i] > view[1] || (tensors.died[i] >= 0 && tensors.died[i] < view[0]))) { range.press("whole"); show(whole); } else graph.updateOptions({});
      live();
    },
  };
  start.push(() => { draw(); live(); });
  drawings.push(() => { draw(); live(); });
  const legend = el("ul", {class: "legend"}, [...kinds].reverse().map(k => el("li", null, swatch(k.name), k.label)));
  const sampled = T.at.length < T.events ? " The curves keep " + grouped(T.at.length) + " of " + grouped(T.events) + " events: every peak and every border between phases is exact." : "";
  return section("timeline", "Memory over the run", "From left to right every allocation and free of the program, in order. The height is what nvidia-smi would show. Drag to zoom, double-click for everything; click to pin." + sampled,
    el("div", {class: "tools"}, range, limit && !limitShown ? el("span", {class: "muted"}, "The limit of " + size(limit) + " lies above the chart.") : null),
    el("div", {class: "split"}, frame, panel), legend);
}
let timeline = null;
const start = [];  // drawn once the page is laid out
