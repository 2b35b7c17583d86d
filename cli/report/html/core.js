// Words, numbers and elements. Names come from model files, so text only ever enters the page as text, never as markup.

const doc = JSON.parse(document.getElementById("report-data").textContent);

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  return fill(node, attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "css") for (const [property, v] of Object.entries(value)) node.style.setProperty(property, v);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}

// Halves go to the even neighbour, as everywhere else in memplan: 17.25 is 17.2. toFixed rounds them away from zero.
function fixed(value, digits) {
  const scale = 10 ** digits, scaled = value * scale, down = Math.floor(scaled);
  if (scaled - down !== 0.5) return value.toFixed(digits);
  return ((down % 2 === 0 ? down : down + 1) / scale).toFixed(digits);
}

// As memplan's own to_human: binary units, two decimals below ten, one above.
function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let value = bytes, unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) { value /= 1024; ++unit; }
  if (unit === 0) return bytes + " B";
  return fixed(value, Math.abs(value) < 10 ? 2 : 1) + " " + units[unit];
}

const grouped = n => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
const exact = bytes => grouped(bytes) + " bytes";

function share(part, whole) {
  if (!(whole > 0)) return "–";
  const p = part / whole * 100;
  return p >= 0.05 || p === 0 ? fixed(p, 1) + "%" : "<0.1%";
}

function shortCount(n) {
  for (const [limit, unit] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]])
    if (n >= limit) return fixed(n / limit, n / limit < 10 ? 2 : 1) + " " + unit;
  return String(n);
}

const plural = (n, word) => grouped(n) + " " + word + (n === 1 ? "" : "s");

// Kinds of memory, from the bottom of the stack to its top; colours are --k-<key> of the style sheet.
const KINDS = [
  ["context", "context", "CUDA context and libraries"],
  ["parameters", "parameters", "Parameters"],
  ["buffers", "buffers", "Buffers"],
  ["optimizer state", "optimizer", "Optimizer state"],
  ["gradients", "gradients", "Gradients"],
  ["batch", "batch", "Input batch"],
  ["activations", "activations", "Activations"],
  ["outputs", "outputs", "Model outputs"],
  ["temporaries", "temporaries", "Temporaries"],
  ["workspaces", "workspaces", "Library workspaces"],
  ["rounding", "rounding", "Rounding of blocks"],
  ["nccl", "other", "NCCL's buffers"],
  ["cached", "cached", "Cached by the allocator"],
].map(([name, key, label]) => ({name, key, label}));
// A kind that this page does not know yet is drawn all the same.
for (const name of Object.keys((doc.timeline || {}).by_category || {})) if (!KINDS.some(k => k.name === name)) KINDS.splice(-2, 0, {name, key: "other", label: name});
const kindOf = name => KINDS.find(k => k.name === name) || {name, key: "other", label: name};

const variable = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = kind => variable("--k-" + kindOf(kind).key) || variable("--muted");
const swatch = kind => el("span", {class: "swatch k-" + kindOf(kind).key, "aria-hidden": "true"});

const VERDICTS = {
  "fits": {word: "Fits", mark: "✓"}, "tight": {word: "Tight", mark: "!"}, "no-fit": {word: "Does not fit", mark: "✕"},
  "unknown": {word: "Unknown", mark: "?"},
};
const pill = verdict => {
  const v = VERDICTS[verdict];
  return v ? el("span", {class: "pill " + verdict}, el("span", {"aria-hidden": "true"}, v.mark + " "), v.word) : el("span", {class: "pill"}, String(verdict || "–"));
};

// A section of the page; `help` is the line below its title that says how to read it.
function section(id, title, help, ...children) {
  const heading = el("h2", {id: id + "-title"}, title);
  return el("section", {id, class: "card", "aria-labelledby": id + "-title", tabindex: "-1"}, heading, help ? el("p", {class: "help"}, help) : null, ...children);
}

// Buttons of which one is pressed.
function choices(label, options, chosen, choose) {
  const group = el("div", {class: "choices", role: "group", "aria-label": label});
  const press = value => { for (const b of group.children) b.setAttribute("aria-pressed", String(b.dataset.value === value)); };
  for (const [value, text] of options)
    group.append(el("button", {type: "button", "data-value": value, "aria-pressed": String(value === chosen), onclick: () => { press(value); choose(value); }}, text));
  group.press = press;
  return group;
}

async function copyText(text, button) {
  let good = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch (e) {  // pages opened from disk may not use the clipboard directly
    const area = el("textarea", {class: "offscreen", "aria-hidden": "true"});
    area.value = text;
    document.body.append(area);
    area.select();
    good = document.execCommand("copy");
    area.remove();
  }
  const before = button.textContent;
  button.textContent = good ? "Copied" : "Press Ctrl+C";
  setTimeout(() => { button.textContent = before; }, 1400);
}

const code = text => el("div", {class: "code"}, el("pre", {tabindex: "0"}, text), copyButton(text));
const copyButton = text => { const b = el("button", {type: "button", class: "copy"}, "Copy"); b.addEventListener("click", () => copyText(text, b)); return b; };

// What is drawn again when the theme, the width or the paper changes.
const drawings = [];
const redraw = () => { for (const draw of drawings) draw(); };

const tip = document.getElementById("tip");
function showTip(x, y, ...children) {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const box = tip.getBoundingClientRect(), pad = 12;
  tip.style.left = Math.max(pad, Math.min(x + pad, innerWidth - box.width - pad)) + "px";
  tip.style.top = (y + box.height + 2 * pad > innerHeight ? Math.max(pad, y - box.height - pad) : y + pad) + "px";
}
const hideTip = () => { tip.hidden = true; };

function debounce(f, milliseconds) {
  let timer = 0;
  return (...a) => { clearTimeout(timer); timer = setTimeout(() => f(...a), milliseconds); };
}

// A canvas in the resolution of the screen; returns its context with one unit per CSS pixel.
function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
