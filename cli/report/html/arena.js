// Where the blocks lie in the allocator's segments at the peak, and what is lost between them.

function arenaSection() {
  const segments = T && T.arena ? T.arena.segments : [];
  if (!segments.length) return null;
  // One tape of addresses without the gaps between segments, largest segments first.
  const order = segments.map((s, n) => n).sort((a, b) => segments[b].bytes - segments[a].bytes || segments[a].address - segments[b].address);
  const pieces = [];
  let end = 0, free = 0, largest = 0, holes = 0, rounding = 0, unsplittable = 0;
  for (const n of order) {
    const s = segments[n];
    const whole = s.blocks.length === 1;
    for (const [bytes, requested, row] of s.blocks) {
      pieces.push({from: end, bytes, requested, row, segment: n});
      end += bytes;
      if (row === -1) { free += bytes; ++holes; largest = Math.max(largest, bytes); if (!whole) unsplittable += bytes; }
      else rounding += bytes - requested;
    }
    pieces.push({from: end, bytes: 0, border: true});
  }
  const starts = pieces.filter(p => !p.border), offsets = starts.map(p => p.from);
  const canvas = el("canvas", {class: "arena", tabindex: "0", role: "img", "aria-label": "Map of " + plural(segments.length, "segment") + ": " + size(end) + " reserved, " + size(free) + " free in " + plural(holes, "hole") + ", the largest of " + size(largest)});
  const box = el("div", {class: "arenabox"}, canvas);
  const HEIGHT = 18, GAP = 4;
  let width = 0, perRow = 1, rowCount = 1;
  function draw() {
    width = box.clientWidth || 800;
    rowCount = Math.max(1, Math.min(24, Math.ceil(segments.length / 2), Math.ceil(end / (64 * 2 ** 20))));
    perRow = end / rowCount;
    const c = prepare(canvas, width, rowCount * (HEIGHT + GAP));
    const fills = new Map(), fillOf = kind => { if (!fills.has(kind)) fills.set(kind, colour(kind)); return fills.get(kind); };
    c.fillStyle = variable("--hole");
    for (let r = 0; r < rowCount; ++r) c.fillRect(0, r * (HEIGHT + GAP), width, HEIGHT);
    const scale = width / perRow;
    // A block that goes over the end of a row goes on in the next one.
    const each = (from, bytes, paint) => {
      const to = from + bytes, last = Math.min(rowCount - 1, Math.floor(to / perRow));
      for (let row = Math.min(rowCount - 1, Math.floor(from / perRow)); row <= last; ++row) {
        const left = Math.max(from, row * perRow), right = row === rowCount - 1 ? to : Math.min(to, (row + 1) * perRow);
        if (right > left) paint((left - row * perRow) * scale, row * (HEIGHT + GAP), (right - left) * scale);
      }
    };
    const other = variable("--muted"), lost = variable("--k-rounding");
    for (const p of starts) {
      if (p.row === -1) continue;
      c.fillStyle = p.row >= 0 ? fillOf(tensors.kindName(p.row)) : other;
      each(p.from, p.bytes, (x, y, w) => c.fillRect(x, y, w > 2 ? w - .6 : Math.max(w, .4), HEIGHT));
      if ((p.bytes - p.requested) * scale >= .5) {
        c.fillStyle = lost;
        each(p.from + p.requested, p.bytes - p.requested, (x, y, w) => { if (w >= .5) c.fillRect(x, y, w, HEIGHT); });
      }
    }
    c.fillStyle = variable("--text");
    for (const p of pieces) if (p.border && p.from < end) {
      const row = Math.min(rowCount - 1, Math.floor(p.from / perRow));
      c.fillRect((p.from - row * perRow) * scale - .5, row * (HEIGHT + GAP) - 1, 1, HEIGHT + 2);
    }
  }
  const pieceAt = e => {
    const area = canvas.getBoundingClientRect(), row = Math.floor((e.clientY - area.top) / (HEIGHT + GAP));
    if (row < 0 || row >= rowCount) return null;
    return starts[lastAtMost(offsets, (row + (e.clientX - area.left) / width) * perRow)] || null;
  };
  const about = p => {
    const s = segments[p.segment];
    const where = el("p", {class: "muted"}, (s.expandable ? "expandable segment" : "segment") + " of " + size(s.bytes) + ", " + s.pool + " pool" + (s.stream ? ", stream " + s.stream : ""));
    if (p.row === -1) return el("div", null, el("strong", null, "free: " + size(p.bytes)), where);
    if (p.row < 0) return el("div", null, el("strong", null, size(p.bytes) + " in use"), where);
    return el("div", null, swatch(tensors.kindName(p.row)), el("strong", null, tensorWord(p.row)), el("p", null, size(p.requested) + " in a block of " + size(p.bytes)), el("p", {class: "muted"}, moduleOf(p.row)), where);
  };
  canvas.addEventListener("mousemove", e => { const p = pieceAt(e); if (p) showTip(e.clientX, e.clientY, about(p)); else hideTip(); });
  canvas.addEventListener("mouseleave", hideTip);
  let cursor = -1;
  canvas.addEventListener("keydown", e => {
    const moves = {ArrowRight: 1, ArrowLeft: -1};
    if (e.key === "Escape") hideTip();
    if (!(e.key in moves)) return;
    e.preventDefault();
    cursor = Math.min(starts.length - 1, Math.max(0, cursor + moves[e.key]));
    const area = canvas.getBoundingClientRect(), row = Math.min(rowCount - 1, Math.floor(starts[cursor].from / perRow));
    showTip(area.left + (starts[cursor].from - row * perRow) / perRow * width, area.top + row * (HEIGHT + GAP), about(starts[cursor]));
  });
  canvas.addEventListener("blur", hideTip);
  start.push(draw);
  drawings.push(draw);
  const lost = el("dl", {class: "figures"}, figure("Reserved", end, plural(segments.length, "segment")), figure("Free inside", free, plural(holes, "hole") + ", " + share(free, end) + " of it"), figure("Largest hole", largest, "a larger request needs a new segment"),
    figure("Cut off", unsplittable, "free, but its segment is in use"), figure("Rounding", rounding, "blocks larger than requested"));
  const left = T.arena.left_out_segments ? el("p", {class: "muted"}, "The map leaves out " + plural(T.arena.left_out_segments, "segment") + " with " + size(T.arena.left_out_bytes) + ".") : null;
  const atPeakOnly = T.reserved_bytes.reduce((a, b) => Math.max(a, b), 0) > end ? el("p", {class: "muted"}, "This is the moment with most allocated; reserved grows later on, to " + size(T.reserved_bytes.reduce((a, b) => Math.max(a, b), 0)) + ".") : null;
  const seen = new Set();
  for (const p of starts) if (p.row >= 0) seen.add(tensors.kind[p.row]);
  const shown = [...seen].map(k => tensors.kinds[k]);
  return section("arena", "Inside the allocator", "Every byte that PyTorch's caching allocator holds at the peak, segment after segment, the largest first; pale is free. Thin upright lines are borders between segments, which no tensor can cross.",
    lost, box, el("ul", {class: "legend"}, KINDS.filter(k => shown.includes(k.name)).map(k => el("li", null, swatch(k.name), k.label)), el("li", null, el("span", {class: "swatch hole", "aria-hidden": "true"}), "Free")), left, atPeakOnly);
}
