// Puts the page together.

const main_ = document.getElementById("report"), nav = document.getElementById("sections");
const reportSections = () => [verdictSection, gateSection, changesSection, diffSection, timelineSection, tensorSection, ownersSection, arenaSection, scalingSection, ranksSection, cardsSection, basisSection].map(make => make()).filter(Boolean);
const made = doc.kind === "check" ? checkSections() : doc.kind === "diff" ? comparisonSections() : reportSections();
const names = {verdict: "Verdict", gate: "Gate", changes: "Change", diff: "Diff", timeline: "Timeline", tensors: "Tensors", owners: "Owners", arena: "Arena", scaling: "Scaling", ranks: "Ranks", gpus: "GPUs", basis: "Basis"};
main_.replaceChildren(...made, el("footer", {class: "foot"}, doc.kind === "check" || doc.kind === "diff" ? null : keysHelp(), el("p", {class: "muted"}, "Made by memplan " + ((doc.tool || {}).version || "") + " without a GPU and without running the model. This file loads nothing from a network.")));
for (const s of made) nav.append(el("a", {href: "#" + s.id}, names[s.id] || s.querySelector("h2").textContent));
if (!T && doc.kind !== "check" && doc.kind !== "diff") document.getElementById("basis").prepend(el("p", {class: "help"}, "This report was saved without its timeline: the chart, the map and the curves are left out. Make the HTML from the model itself to have them."));

for (const draw of start) draw();

// The section in sight is marked in the bar.
if ("IntersectionObserver" in window) {
  const links = new Map([...nav.children].map(a => [a.getAttribute("href").slice(1), a]));
  const watch = new IntersectionObserver(entries => { for (const e of entries) links.get(e.target.id).classList.toggle("here", e.isIntersecting); }, {rootMargin: "-20% 0px -70% 0px"});
  for (const s of made) watch.observe(s);
}

const root = document.documentElement, themeButton = document.getElementById("theme");
const themes = ["auto", "light", "dark"];
function setTheme(name, keep) {
  root.dataset.theme = name;
  themeButton.textContent = {auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark"}[name];
  if (keep) try { localStorage.setItem("memplan-theme", name); } catch (e) { /* no storage: the choice lasts as long as the page */ }
  if (keep) redraw();
}
themeButton.addEventListener("click", () => setTheme(themes[(themes.indexOf(root.dataset.theme) + 1) % themes.length], true));
setTheme(root.dataset.theme, false);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

document.addEventListener("keydown", e => {
  if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
  const search = document.getElementById("search");
  if (e.key === "/" && search) { e.preventDefault(); search.focus(); }
  if (e.key === "t") setTheme(themes[(themes.indexOf(root.dataset.theme) + 1) % themes.length], true);
});

let width = innerWidth;
addEventListener("resize", debounce(() => { if (innerWidth !== width) { width = innerWidth; redraw(); } }, 120));

// Paper is light and has its own width.
let screenTheme = null;
addEventListener("beforeprint", () => {
  screenTheme = root.dataset.theme;
  root.dataset.theme = "light";
  root.classList.add("printing");
  for (const fill of onPrint) fill();
  redraw();
});
addEventListener("afterprint", () => {
  root.classList.remove("printing");
  root.dataset.theme = screenTheme || "auto";
  redraw();
});
root.classList.add("ready");
