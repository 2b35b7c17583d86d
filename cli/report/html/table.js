// The tensors at the peak. Only the rows in sight are in the page, so that a hundred thousand are no burden.

const ROW = 30;  // height of a row, as in the style sheet

function tensorSection() {
  if (!tensors.count) return null;
  const total = atPeak.reduce((sum, i) => sum + tensors.bytes[i], 0);
  const entry = i => ({i, bytes: tensors.bytes[i], count: 1, name: tensorWord(i), kind: tensors.kindName(i), module: moduleOf(i), shape: [tensors.shape(i), tensors.dtype(i)].filter(Boolean).join(" "),
                       reason: reasonWord(tensors.reason(i)), born: tensors.born[i], members: null});
  let each = null;
  const single = () => each || (each = atPeak.map(entry));  // a hundred thousand rows are made when they are asked for
  // Equal tensors of repeated layers share a row. Texts are compared by their numbers, which is what makes it quick.
  const together = (() => {
    const groups = new Map(), foldedIds = new Map(), byText = new Map();
    const foldedId = id => {
      if (!foldedIds.has(id)) {
        const text = folded(tensors.strings[id]);
        if (!byText.has(text)) byText.set(text, byText.size);
        foldedIds.set(id, byText.get(text));
      }
      return foldedIds.get(id);
    };
    for (const i of atPeak) {
      const key = [foldedId(tensors.nameIds[i]), tensors.kind[i], tensors.shapeIds[i], tensors.dtypeIds[i], foldedId(tensors.moduleIds[i]), tensors.reasonIds[i], tensors.nameIds[i] ? 0 : tensors.opIds[i]].join();
      const known = groups.get(key);
      if (!known) groups.set(key, [i]);
      else known.push(i);
    }
    return [...groups.values()].map(members => {
      const e = entry(members[0]);
      if (members.length === 1) return e;
      e.members = members;
      e.count = members.length;
      e.bytes = members.reduce((sum, i) => sum + tensors.bytes[i], 0);
      if (members.some(i => tensors.nameIds[i] !== tensors.nameIds[members[0]])) { e.name = folded(e.name); e.module = folded(e.module); }
      else if (members.some(i => tensors.moduleIds[i] !== tensors.moduleIds[members[0]])) e.module = folded(e.module);
      return e;
    });
  })();
  let grouped_ = together.length < atPeak.length, words = "", kind = "", order = "bytes", down = true, rows = [], active = -1;

  const columns = [["bytes", "Size", "number"], ["share", "Share", "number wide"], ["kind", "Kind", ""], ["name", "Tensor", ""], ["shape", "Shape", "wide"], ["module", "Module", "wide"], ["reason", "Why alive", ""]];
  const body = el("div", {class: "rows", role: "rowgroup"});
  const scroller = el("div", {class: "scroller", tabindex: "0", role: "table", "aria-label": "Tensors alive at the peak", "aria-colcount": columns.length});
  const head = el("div", {class: "row headrow", role: "row"}, columns.map(([key, label, kinds]) => el("button", {type: "button", class: "cell " + kinds, role: "columnheader", "data-key": key, onclick: () => sortBy(key)}, label)));
  scroller.append(head, body);
  const found = el("span", {class: "muted", role: "status"});
  const search = el("input", {type: "search", id: "search", placeholder: "Search names, modules, ops, reasons  ( / )", "aria-label": "Search the tensors", autocomplete: "off", spellcheck: "false"});
  const kinds = el("select", {"aria-label": "Kind"}, el("option", {value: ""}, "All kinds"), [...new Set(together.map(e => e.kind))].map(k => el("option", {value: k}, kindOf(k).label)));
  const fold = el("label", {class: "check"}, el("input", {type: "checkbox", id: "fold", checked: grouped_}), " Fold repeated layers");
  const details = el("div", {class: "details", hidden: true});

  const hay = e => e.hay || (e.hay = [e.name, tensors.name(e.i), e.kind, e.module, tensors.module(e.i), e.shape, e.reason, tensors.op(e.i)].join(" ").toLowerCase());
  function choose() {
    const terms = words.toLowerCase().split(/\s+/).filter(Boolean);
    rows = (grouped_ ? together : single()).filter(e => (!kind || e.kind === kind) && terms.every(t => hay(e).includes(t)));
    const key = order === "share" ? "bytes" : order;
    const sign = down ? -1 : 1;
    // Ties keep the order of size, so the same click always gives the same table.
    rows.sort((a, b) => (typeof a[key] === "number" ? a[key] - b[key] : a[key].localeCompare(b[key], "en", {numeric: true})) * sign || b.bytes - a.bytes || a.i - b.i);
    body.style.height = rows.length * ROW + "px";
    scroller.setAttribute("aria-rowcount", String(rows.length + 1));
    for (const b of head.children) b.setAttribute("aria-sort", b.dataset.key === order ? (down ? "descending" : "ascending") : "none");
    const bytes = rows.reduce((sum, e) => sum + e.bytes, 0), members = rows.reduce((sum, e) => sum + e.count, 0);
    found.textContent = plural(members, "tensor") + (grouped_ && members !== rows.length ? " in " + plural(rows.length, "row") : "") + ", " + size(bytes);
    active = -1;
    scroller.scrollTop = 0;
    paint();
  }
  function sortBy(key) {
    if (key === order) down = !down; else { order = key; down = key === "bytes" || key === "share"; }
    choose();
  }

  function rowOf(n, top) {
    const e = rows[n];
    return el("div", {class: "row" + (n === active ? " active" : ""), role: "row", "aria-rowindex": n + 2, "data-n": n, css: top === null ? {} : {top: top + "px"}},
      el("span", {class: "cell number", role: "cell", title: exact(e.bytes)}, size(e.bytes)), el("span", {class: "cell number wide muted", role: "cell"}, share(e.bytes, total)),
      el("span", {class: "cell", role: "cell"}, swatch(e.kind), el("span", {class: "clip"}, e.kind)),
      el("span", {class: "cell", role: "cell", title: e.name}, middle(e.name), e.count > 1 ? el("span", {class: "times"}, "×" + e.count) : null),
      el("span", {class: "cell wide mono", role: "cell", title: e.shape}, el("span", {class: "clip"}, e.shape)), el("span", {class: "cell wide muted", role: "cell", title: e.module}, middle(e.module)),
      el("span", {class: "cell muted", role: "cell", title: e.reason}, el("span", {class: "clip"}, e.reason)));
  }
  function paint() {
    const first = Math.max(0, Math.floor((scroller.scrollTop - ROW) / ROW) - 4), last = Math.min(rows.length, first + Math.ceil(scroller.clientHeight / ROW) + 10);
    const list = document.createDocumentFragment();
    for (let n = first; n < last; ++n) list.append(rowOf(n, n * ROW));
    if (!rows.length) list.append(el("p", {class: "muted none"}, "Nothing matches."));
    body.replaceChildren(list);
  }
  function activate(n, open) {
    active = Math.min(rows.length - 1, Math.max(0, n));
    const top = active * ROW, view = scroller.clientHeight - ROW;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + ROW > scroller.scrollTop + view) scroller.scrollTop = top + ROW - view;
    paint();
    if (open) explain(rows[active]);
  }
  function explain(e) {
    if (!e) return;
    const i = e.i, fact = (label, value) => value === "" || value === null || value === undefined ? null : el("div", null, el("dt", null, label), el("dd", null, value));
    details.hidden = false;
    details.replaceChildren(el("h3", null, swatch(e.kind), e.name, e.count > 1 ? el("span", {class: "times"}, "×" + e.count) : null, el("button", {type: "button", class: "ghost close", "aria-label": "Close", onclick: close}, "✕")),
      el("dl", {class: "facts"}, fact("Size", size(tensors.bytes[i]) + (e.count > 1 ? " each, " + size(e.bytes) + " together" : "") + " (" + exact(tensors.bytes[i]) + ")"), fact("Block", size(tensors.block[i])), fact("Shape", e.shape), fact("Made by", tensors.op(i)), fact("Module", tensors.module(i) || e.module),
        fact("Born", T ? placeText(tensors.born[i]) : ""), fact("Dies", T ? placeText(tensors.died[i]) : ""), fact("Why alive", tensors.reason(i)),
        e.members && e.members.length > 1 ? fact("Members", e.members.slice(0, 12).map(m => tensorWord(m) === e.name ? moduleOf(m) : tensorWord(m)).join(", ") + (e.members.length > 12 ? " … " + (e.members.length - 12) + " more" : "")) : null));
    if (timeline) timeline.mark(i);
  }
  const close = () => { details.hidden = true; if (timeline) timeline.mark(null); };

  scroller.addEventListener("scroll", () => requestAnimationFrame(paint), {passive: true});
  body.addEventListener("click", e => { const row = e.target.closest(".row"); if (row) activate(+row.dataset.n, true); });
  scroller.addEventListener("keydown", e => {
    const page = Math.max(1, Math.floor(scroller.clientHeight / ROW) - 2);
    const keys = {ArrowDown: () => activate(active + 1, !details.hidden), ArrowUp: () => activate(active - 1, !details.hidden), PageDown: () => activate(active + page), PageUp: () => activate(active - page),
                  Home: () => activate(0), End: () => activate(rows.length - 1), Enter: () => activate(active, true), Escape: close};
    if (!keys[e.key] || e.target.closest(".headrow") && e.key === "Enter") return;
    e.preventDefault();
    keys[e.key]();
  });
  search.addEventListener("input", debounce(() => { words = search.value; choose(); }, 60));
  kinds.addEventListener("change", () => { kind = kinds.value; choose(); });
  fold.firstChild.addEventListener("change", e => { grouped_ = e.target.checked; choose(); });
  start.push(choose);
  drawings.push(paint);
  // Paper has no scroll bar: the largest rows as they are sorted, and how many are left out.
  const printed = el("div", {class: "printonly"});
  onPrint.push(() => {
    const most = 40, list = rows.slice(0, most).map((_, n) => rowOf(n, null));
    printed.replaceChildren(head.cloneNode(true), ...list, rows.length > most ? el("p", {class: "muted"}, "… and " + plural(rows.length - most, "more row")) : "");
  });
  const csv = el("button", {type: "button", class: "ghost", onclick: () => save("tensors.csv", tableText(rows))}, "Save as CSV");
  return section("tensors", "At the peak", "Every tensor alive at the peak and what keeps it there. Select a row for its life; its span is marked in the chart above.",
    el("div", {class: "tools"}, search, kinds, grouped_ ? fold : null, csv, found), scroller, printed, details);
}

const reasonWord = reason => reason.startsWith("aten::") ? "backward of " + reason.slice(6) : reason;

function tableText(rows) {
  const cell = value => /[",\n]/.test(String(value)) ? '"' + String(value).replace(/"/g, '""') + '"' : String(value);
  // A cell that begins like a formula must stay text in a spreadsheet.
  const safe = value => cell(/^[=+\-@\t\r]/.test(String(value)) ? "'" + value : value);
  return [["bytes", "count", "kind", "name", "shape", "module", "reason"].join(","), ...rows.map(e => [e.bytes, e.count, e.kind, safe(e.name), safe(e.shape), safe(e.module), safe(e.reason)].join(","))].join("\n") + "\n";
}

function save(name, text) {
  const link = el("a", {download: name, href: URL.createObjectURL(new Blob([text], {type: "text/plain"}))});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
const onPrint = [];
