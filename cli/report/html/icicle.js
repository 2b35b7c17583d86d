// Who owns the peak: modules as nested bars, and the same bytes by op, by dtype and by kind.

const SMALLEST = 0.0015;  // parts of the whole width; what is smaller is drawn together as "others"

// {name, path, bytes, list, kinds}; where `fold` says so, repeated layers (h.0, h.1 …) become one child "h.*".
function moduleTree(fold) {
  const made = (name, path, parent) => ({name, path, bytes: 0, times: 1, children: new Map(), kinds: {}, parent});
  const root = made("everything", "", null);
  const parts = new Map();  // of module paths, which come many times
  for (const i of atPeak) {
    const path = moduleOf(i);
    if (!parts.has(path)) parts.set(path, path ? path.split(".") : ["(outside modules)"]);
    let node = root;
    const bytes = tensors.bytes[i], kind = tensors.kindName(i);
    const add = n => { n.bytes += bytes; n.kinds[kind] = (n.kinds[kind] || 0) + bytes; };
    add(root);
    for (const part of parts.get(path)) {
      if (!node.children.has(part)) node.children.set(part, made(part, node.path ? node.path + "." + part : part, node));
      node = node.children.get(part);
      add(node);
    }
  }
  // Numbered siblings with modules of their own inside are repetitions; those without are steps of one sequence.
  const merge = (into, from) => {
    into.bytes += from.bytes;
    for (const [kind, bytes] of Object.entries(from.kinds)) into.kinds[kind] = (into.kinds[kind] || 0) + bytes;
    for (const [name, child] of from.children) {
      if (!into.children.has(name)) into.children.set(name, made(name, into.path + "." + name, into));
      merge(into.children.get(name), child);
    }
  };
  const repeat = node => {
    const groups = new Map();
    for (const child of node.children.values()) {
      const name = child.children.size ? child.name.replace(/(^|_)\d+$/, "$1*") : child.name;
      groups.set(name, [...(groups.get(name) || []), child]);
    }
    for (const [name, members] of groups) if (members.length > 1) {
      const all = made(name, node.path ? node.path + "." + name : name, node);
      all.times = members.length;
      for (const member of members) { merge(all, member); node.children.delete(member.name); }
      node.children.set(name, all);
    }
    node.children.forEach(repeat);
  };
  if (fold) repeat(root);
  const settle = node => {
    node.list = [...node.children.values()].sort((a, b) => b.bytes - a.bytes || (a.name < b.name ? -1 : 1));
    node.list.forEach(settle);
    // A level with a single child says nothing; the two share one bar.
    if (node.list.length === 1 && node.parent && node.list[0].bytes === node.bytes) {
      const only = node.list[0];
      node.name += "." + only.name;
      node.path = only.path;
      node.times = Math.max(node.times, only.times);
      node.list = only.list;
      for (const c of node.list) c.parent = node;
    }
  };
  settle(root);
  return root;
}

const mainKind = node => Object.entries(node.kinds).sort((a, b) => b[1] - a[1])[0][0];

function icicle() {
  const HEIGHT = 30, LEVELS = 7;
  let fold = true, root = moduleTree(fold), top = root, focus = null;
  const picture = svg("svg", {class: "icicle", role: "tree", "aria-label": "Bytes by module"});
  const crumbs = el("nav", {class: "crumbs", "aria-label": "Shown module"});
  function draw() {
    const width = picture.parentNode ? picture.parentNode.clientWidth : 800;
    const shapes = [], order = [];
    let deepest = 0;
    const place = (node, x, w, level) => {
      deepest = Math.max(deepest, level);
      shapes.push({node, x, w, level});
      if (level + 1 >= LEVELS) return;
      let at = x, rest = 0, hidden = 0;
      for (const child of node.list) {
        const cw = w * child.bytes / node.bytes;
        if (cw / width < SMALLEST || shapes.length > 3000) { rest += cw; ++hidden; continue; }
        place(child, at, cw, level + 1);
        at += cw;
      }
      if (hidden && rest >= 1) shapes.push({others: hidden, x: at, w: rest, level: level + 1});
    };
    if (top.bytes > 0) place(top, 0, width, 0);
    const height = (deepest + 1) * HEIGHT;
    picture.setAttribute("viewBox", "0 0 " + width + " " + height);
    picture.setAttribute("width", width);
    picture.setAttribute("height", height);
    picture.replaceChildren(...shapes.map(s => {
      const y = s.level * HEIGHT;
      if (s.others) return svg("rect", {class: "others", x: s.x, y, width: Math.max(0, s.w - 1), height: HEIGHT - 2}, svg("title", null, plural(s.others, "smaller module")));
      order.push(s.node);
      const words = s.node.name + (s.node.times > 1 ? " ×" + s.node.times : ""), room = Math.floor((s.w - 10) / 6.6);
      const g = svg("g", {class: "node", role: "treeitem", tabindex: s.node === (focus || top) ? "0" : "-1", "aria-level": s.level + 1, "aria-label": (s.node.path || s.node.name) + ", " + size(s.node.bytes)},
        svg("rect", {x: s.x, y, width: Math.max(.5, s.w - 1), height: HEIGHT - 2, rx: 3}));
      // A strip of the kinds along the lower edge: what the module's bytes are.
      let at = s.x;
      if (s.w > 3) for (const k of KINDS) if (s.node.kinds[k.name]) {
        const kw = (s.w - 1) * s.node.kinds[k.name] / s.node.bytes;
        g.append(svg("rect", {class: "strip k-" + k.key, x: at, y: y + HEIGHT - 8, width: Math.max(0, kw), height: 6}));
        at += kw;
      }
      if (room >= 3) {
        g.append(svg("text", {x: s.x + 5, y: y + 15}, words.length > room ? words.slice(0, room - 1) + "…" : words));
        if (room - words.length > 11) g.append(svg("text", {class: "amount", x: s.x + s.w - 6, y: y + 15, "text-anchor": "end"}, size(s.node.bytes)));
      }
      g.addEventListener("click", () => zoom(s.node));
      g.addEventListener("mousemove", e => showTip(e.clientX, e.clientY, about(s.node)));
      g.addEventListener("mouseleave", hideTip);
      g.addEventListener("focus", () => { focus = s.node; });
      g.addEventListener("keydown", e => keys(e, s.node));
      s.node.element = g;
      return g;
    }));
    const trail = [];
    for (let n = top; n; n = n.parent) trail.unshift(n);
    crumbs.replaceChildren(...trail.map(n => n === top ? el("strong", null, n.name) : el("button", {type: "button", class: "link", onclick: () => zoom(n)}, n.name)).flatMap((c, i) => i ? [" › ", c] : [c]));
  }
  const about = node => el("div", null, el("strong", null, node.path || node.name), node.times > 1 ? el("span", {class: "times"}, "×" + node.times) : null,
    el("p", null, size(node.bytes) + ", " + share(node.bytes, root.bytes) + " of the tensors"),
    el("ul", {class: "plain"}, KINDS.filter(k => node.kinds[k.name]).sort((a, b) => node.kinds[b.name] - node.kinds[a.name]).map(k => el("li", null, swatch(k.name), k.label + " " + size(node.kinds[k.name])))));
  function zoom(node) { top = node === top && node.parent ? node.parent : node; focus = top; hideTip(); draw(); }
  function keys(e, node) {
    const siblings = node.parent ? node.parent.list : [node], n = siblings.indexOf(node);
    const go = {ArrowDown: node.list[0], ArrowUp: node.parent, ArrowRight: siblings[n + 1], ArrowLeft: siblings[n - 1]}[e.key];
    if (e.key === "Enter" || e.key === " ") zoom(node);
    else if (e.key === "Escape") zoom(root);
    else if (!go) return;
    e.preventDefault();
    const next = e.key === "Enter" || e.key === " " || e.key === "Escape" ? top : go;
    if (next.element && next.element.isConnected) { if (focus && focus.element) focus.element.setAttribute("tabindex", "-1"); focus = next; next.element.setAttribute("tabindex", "0"); next.element.focus(); }
  }
  const check = el("input", {type: "checkbox", checked: true, onchange: e => { fold = e.target.checked; root = top = moduleTree(fold); focus = null; draw(); }});
  start.push(draw);
  drawings.push(draw);
  return el("div", null, el("div", {class: "tools"}, crumbs, el("label", {class: "check"}, check, " Fold repeated layers")), el("div", {class: "iciclebox"}, picture));
}

// Bars of the largest owners, each split by kind.
function owners(keyOf) {
  const sums = new Map();
  let total = 0;
  for (const i of atPeak) {
    const key = keyOf(i) || "(none)";
    const own = sums.get(key) || {key, bytes: 0, count: 0, kinds: {}};
    own.bytes += tensors.bytes[i];
    ++own.count;
    own.kinds[tensors.kindName(i)] = (own.kinds[tensors.kindName(i)] || 0) + tensors.bytes[i];
    sums.set(key, own);
    total += tensors.bytes[i];
  }
  const list = [...sums.values()].sort((a, b) => b.bytes - a.bytes || (a.key < b.key ? -1 : 1)), most = 20;
  return el("div", null, el("table", {class: "owners"}, el("tbody", null, list.slice(0, most).map(o => el("tr", null, el("th", {scope: "row"}, el("span", {class: "clip"}, o.key)), el("td", {class: "number"}, size(o.bytes)), el("td", {class: "number muted"}, share(o.bytes, total)), el("td", {class: "number muted wide"}, "×" + grouped(o.count)),
    el("td", {class: "ownbar"}, el("span", {class: "stack", css: {width: o.bytes / list[0].bytes * 100 + "%"}}, KINDS.filter(k => o.kinds[k.name]).map(k => el("span", {class: "k-" + k.key, css: {width: o.kinds[k.name] / o.bytes * 100 + "%"}, title: k.label + " " + size(o.kinds[k.name])})))))))),
    list.length > most ? el("p", {class: "muted"}, "and " + plural(list.length - most, "smaller one") + ", " + size(list.slice(most).reduce((s, o) => s + o.bytes, 0))) : null);
}

function ownersSection() {
  if (!atPeak.length) return null;
  const lists = {op: i => tensors.op(i), dtype: i => tensors.dtype(i) || "raw bytes", kind: i => kindOf(tensors.kindName(i)).label};
  const holder = el("div", {class: "views"}, el("div", {class: "view", "data-view": "module"}, icicle()), Object.keys(lists).map(key => el("div", {class: "view", "data-view": key, hidden: true})));
  const fillView = view => { if (lists[view.dataset.view] && !view.firstChild) view.append(owners(lists[view.dataset.view])); };  // sums are made when they are looked at
  onPrint.push(() => [...holder.children].forEach(fillView));
  const pick = choices("Split the peak by", [["module", "Module"], ["op", "Op"], ["dtype", "Dtype"], ["kind", "Kind"]], "module", v => { for (const c of holder.children) { c.hidden = c.dataset.view !== v; if (!c.hidden) fillView(c); } });
  return section("owners", "Who owns the peak", "Width is bytes. Modules nest from top to bottom; the strip below a name shows what its bytes are. Select a module to look inside, select it again to step out.", el("div", {class: "tools"}, pick), holder);
}
