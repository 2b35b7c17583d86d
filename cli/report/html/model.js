// The report's numbers in the form that charts and tables ask for.

const T = doc.timeline || null;
const summary = doc.summary || {};

// One row per tensor. Lives are events of the timeline; without one, only what lives at the peak is known.
const tensors = (() => {
  const a = T ? T.allocations : doc.tensor_columns;
  if (!a) return {count: 0};
  const S = T ? T.strings : doc.tensor_columns.strings;
  const kinds = T ? T.categories : doc.tensor_columns.categories;
  const n = a.name.length;
  const ints = column => Int32Array.from(column || new Array(n).fill(-1));
  const bytes = Float64Array.from(a.bytes);
  const c = {count: n, of: a.of === undefined ? n : a.of, bytes, block: Float64Array.from(a.block_bytes || a.bytes), address: a.address ? Float64Array.from(a.address) : null,
             born: ints(a.born), died: ints(a.died), kind: Uint8Array.from(a.category), kinds};
  for (const key of ["name", "op", "module", "reason", "dtype", "shape"]) {
    const ids = Int32Array.from(a[key]);
    c[key] = i => S[ids[i]];
    c[key + "Ids"] = ids;
  }
  c.kindName = i => kinds[c.kind[i]];
  c.strings = S;
  return c;
})();

const livesAt = (i, event) => tensors.born[i] <= event && (tensors.died[i] < 0 || tensors.died[i] > event);

// Rows alive at the peak, largest first.
const atPeak = (() => {
  const rows = [];
  for (let i = 0; i < tensors.count; ++i) if (!T || livesAt(i, T.peak_event)) rows.push(i);
  return rows.sort((x, y) => tensors.bytes[y] - tensors.bytes[x] || x - y);
})();

// The largest tensors alive after an event, and how many there are.
function liveSet(event, most) {
  const best = [];
  let count = 0, bytes = 0;
  for (let i = 0; i < tensors.count; ++i) {
    if (!livesAt(i, event)) continue;
    ++count;
    bytes += tensors.bytes[i];
    if (best.length === most && tensors.bytes[best[most - 1]] >= tensors.bytes[i]) continue;
    let at = best.length < most ? best.length : most - 1;
    while (at > 0 && tensors.bytes[best[at - 1]] < tensors.bytes[i]) { best[at] = best[at - 1]; --at; }
    best[at] = i;
  }
  return {best, count, bytes};
}

// Equal tensors (name, kind and size) as one, the largest sum first. What is beyond `best` is counted too.
function foldLive(best, event) {
  const groups = new Map(), sizes = new Set(best.map(i => tensors.bytes[i])), key = i => tensors.bytes[i] + " " + tensors.kindName(i) + " " + tensorWord(i);
  for (const i of best) if (!groups.has(key(i))) groups.set(key(i), {i, count: 0, bytes: 0});
  for (let i = 0; i < tensors.count; ++i) {
    if (!sizes.has(tensors.bytes[i]) || !livesAt(i, event)) continue;
    const group = groups.get(key(i));
    if (group) ++group.count, group.bytes += tensors.bytes[i];
  }
  return [...groups.values()].sort((x, y) => y.bytes - x.bytes);
}

// The last index of an ascending column with a value of at most x.
function lastAtMost(column, x) {
  let low = 0, high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] <= x) low = middle + 1; else high = middle;
  }
  return low - 1;
}

function placeOf(event) {
  if (!T || event < 0) return {step: null, phase: "", op: "", module: ""};
  const s = T.spans.length ? T.spans[Math.max(0, lastAtMost(spanBegins, event))] : {step: 0, phase: ""};
  const o = lastAtMost(T.ops.first_event, event);
  const known = o >= 0 && (o < T.ops.name.length - 1 || T.ops.of === T.ops.name.length);
  return {step: s.step, phase: s.phase, op: known ? T.strings[T.ops.name[o]] : "", module: known ? T.strings[T.ops.module[o]] : "", index: o};
}
const spanBegins = T ? T.spans.map(s => s.begin) : [];

const stepWord = step => step === 0 ? "set-up" : "step " + step;
function placeText(event) {
  if (event < 0) return "the end of the run";
  const p = placeOf(event);
  return [p.step === null ? "" : stepWord(p.step), p.phase && p.step !== 0 ? p.phase : "", p.op, p.module && "in " + p.module].filter(Boolean).join(", ").replace(", in ", " in ");
}

// "aten::mm" reads as "mm"; a tensor without a name of its own is called by the op that made it.
const opWord = op => op.startsWith("aten::") ? op.slice(6) : op;
const tensorWord = i => shortPath(opWord(tensors.name(i))) || opWord(tensors.op(i)) || "unnamed";

// Exporters wrap the user's module, so that every path may begin with "model.": it tells nothing.
const ROOT = (() => {
  const paths = tensors.count ? new Set(tensors.moduleIds) : new Set();
  const texts = [...paths].map(id => tensors.strings[id]).filter(Boolean);
  return texts.length > 1 && texts.every(t => t === "model" || t.startsWith("model.")) ? "model." : "";
})();
const shortPath = path => ROOT && path.startsWith(ROOT) ? path.slice(ROOT.length) : path;

// Parameters carry their module in the name; what an op made carries the op's module.
function moduleOf(i) {
  const path = tensors.module(i);
  if (path) return shortPath(path);
  const name = tensors.name(i), dot = name.lastIndexOf("."), kind = tensors.kindName(i);
  if (dot <= 0 || !["parameters", "buffers", "gradients", "optimizer state"].includes(kind)) return "";
  const owner = name.slice(0, dot);  // of "conv1.weight.exp_avg" the module is conv1
  return shortPath(kind === "optimizer state" && owner.includes(".") ? owner.slice(0, owner.lastIndexOf(".")) : owner);
}

// Both ends of a path tell something: where there is no room, the middle goes.
function middle(text) {
  const tail = text.length > 24 ? 14 : 0;
  return el("span", {class: "mid"}, el("span", null, tail ? text.slice(0, -tail) : text), el("span", null, tail ? text.slice(-tail) : ""));
}

// "layers.11.mlp" -> "layers.*.mlp": repeated layers differ by their numbers only.
const folded = text => text.replace(/(^|[._])\d+(?=$|[._])/g, "$1*");
