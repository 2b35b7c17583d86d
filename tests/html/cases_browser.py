"""The page in a real browser: it draws, answers to mouse and keys, asks for nothing and complains of nothing."""
import os
import subprocess
import time

import reports
import synthetic
from browser import Browser, missing
from support import check, equal, memplan, scratch

unavailable = missing
_open = []


def browser():
    if not _open:
        _open.append(Browser())
    return _open[0]


def done():
    for b in _open:
        b.__exit__()
    _open.clear()


def opened(setup, scheme="light", width=1280):
    b = browser()
    b.resize(width, 900)
    b.scheme(scheme)
    b.open(reports.made(setup)["html"])
    return b


def clean(b):
    equal([m["message"] for m in b.logs("browser")], [], "console")
    equal(b.requests(), [], "requests")


def test_draws_every_section(setup):
    b = opened(setup)
    ids = b.run("return [...document.querySelectorAll('section')].map(s => s.id)")
    expected = ["verdict", "changes", "timeline", "tensors", "owners", "arena", "scaling", "gpus", "basis"]
    if setup != "gpt2-too-large":
        expected.remove("changes")
    equal(ids, expected)
    check(b.run("return document.querySelector('#timeline canvas').width") > 300, "the chart has a size")
    # Pixels of more than a few colours: something is drawn on both canvases.
    for selector in ("#timeline canvas", "#arena canvas"):
        colours = b.run("const c = document.querySelector(arguments[0]); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const s = new Set(); for (let i = 0; i < d.length; i += 4) if (d[i + 3]) s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return s.size", selector)
        check(colours > 3, f"{selector}: {colours} colours")
    check(not b.run("return document.body.scrollWidth > document.documentElement.clientWidth"), "nothing sticks out")
    clean(b)


test_draws_every_section.cases = [(s,) for s in ("mlp", "gpt2", "gpt2-too-large", "expandable")]


def rows(b):
    return b.run("return [...document.querySelectorAll('.rows .row')].map(r => [...r.children].map(c => c.textContent))")


def found(b):
    return b.run("return document.querySelector('#tensors .tools [role=status]').textContent")


def test_search_and_kinds():
    b = opened("gpt2")
    everything = found(b)
    d = reports.document("gpt2")
    check(everything.startswith(f"{len(d['tensors_at_peak'])} tensors"), everything)
    b.type("#search", "wte weight")
    time.sleep(0.3)
    wanted = [t for t in d["tensors_at_peak"] if "wte" in t["name"] and "weight" in t["name"]]
    check(found(b).startswith(f"{len(wanted)} tensor"), found(b))
    check(all("wte" in r[3] for r in rows(b)), rows(b))
    b.run("const s = document.querySelector('#tensors select'); s.value = 'parameters'; s.dispatchEvent(new Event('change'))")
    equal({r[2] for r in rows(b)}, {"parameters"})
    clean(b)


def test_sort():
    b = opened("gpt2")
    b.run("document.getElementById('fold').click()")
    sizes = sorted((t["bytes"] for t in reports.document("gpt2")["tensors_at_peak"]), reverse=True)
    title = "return +document.querySelector('.rows .row .cell').title.replace(/\\D/g, '')"
    equal(b.run(title), sizes[0], "largest first")
    b.click('.headrow [data-key="bytes"]')
    equal(b.run(title), sizes[-1], "smallest first")
    equal(b.run("return document.querySelector('.headrow [data-key=bytes]').getAttribute('aria-sort')"), "ascending")
    b.click('.headrow [data-key="name"]')
    names = [r[3] for r in rows(b)]
    equal(names, b.run("return [...arguments[0]].sort((x, y) => x.localeCompare(y, 'en', {numeric: true}))", names), "by name")
    clean(b)


def test_hover_shows_live_tensors():
    b = opened("gpt2")
    before = b.run("return document.querySelector('.live').textContent")
    check("Alive at the peak" in before, before)
    largest = b.run("return document.querySelector('.lives .number').textContent")
    biggest = max(t["bytes"] for t in reports.document("gpt2")["tensors_at_peak"])
    equal(largest, b.run("const n = arguments[0]; return n >= 2 ** 30 ? (n / 2 ** 30).toFixed(n < 10 * 2 ** 30 ? 2 : 1) + ' GiB' : (n / 2 ** 20).toFixed(n < 10 * 2 ** 20 ? 2 : 1) + ' MiB'", biggest))
    b.run("document.querySelector('.chart').scrollIntoView({block: 'center', behavior: 'instant'})")
    time.sleep(0.4)
    b.hover("#timeline .chart", -200, 20)
    time.sleep(0.3)
    after = b.run("return document.querySelector('.live').textContent")
    check("Alive here" in after and after != before, after)
    clean(b)


def test_keyboard():
    b = opened("gpt2")
    b.run("document.querySelector('.chart').focus()")
    b.key("ArrowLeft", "ArrowLeft", "ArrowLeft")
    check("Alive here" in b.run("return document.querySelector('.live').textContent"), "arrows move")
    b.key("p", "Enter")
    text = b.run("return document.querySelector('.live').textContent")
    check("Alive at the peak" in text and "pinned" in text, text)
    b.key("Escape", "0")
    equal(b.run("return document.querySelector('#timeline .choices [aria-pressed=true]').textContent"), "Whole run")
    b.run("document.activeElement.blur()")
    b.key("/")
    equal(b.run("return document.activeElement.id"), "search")
    b.run("document.querySelector('.scroller').focus()")
    b.key("ArrowDown", "ArrowDown", "Enter")
    check(not b.run("return document.querySelector('.details').hidden"), "a row opens")
    check("Born" in b.run("return document.querySelector('.details').textContent"), "with its life")
    b.key("Escape")
    check(b.run("return document.querySelector('.details').hidden"), "and closes")
    b.run("document.querySelector('.icicle .node').focus()")
    b.key("ArrowDown", "Enter")
    check(b.run("return document.querySelectorAll('.crumbs button').length") >= 1, "a module opens")
    # Everything that can be clicked can be reached.
    equal(b.run("return [...document.querySelectorAll('[onclick], .clickable')].length"), 0)
    clean(b)


def test_dark_and_light():
    b = opened("gpt2", "light")
    background = "return getComputedStyle(document.body).backgroundColor"
    light = b.run(background)
    b.scheme("dark")
    dark = b.run(background)
    brightness = lambda c: sum(int(n) for n in c[4:-1].split(",")[:3])
    check(brightness(light) > 600 > 150 > brightness(dark), (light, dark))
    b.run("document.getElementById('theme').click()")
    equal(b.run(background), light, "light by choice")
    # Words stand out from what is behind them, in both.
    for scheme in ("light", "dark"):
        b.run("document.documentElement.dataset.theme = arguments[0]", scheme)
        for name in ("--text", "--muted", "--good", "--bad", "--warn", "--open", "--accent"):
            ratio = b.run("""const s = getComputedStyle(document.documentElement), l = c => { const n = parseInt(c.trim().slice(1), 16); return [n >> 16, n >> 8 & 255, n & 255].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((a, v, i) => a + v * [.2126, .7152, .0722][i], 0); };
              const a = l(s.getPropertyValue(arguments[0])), b = l(s.getPropertyValue('--card')); return (Math.max(a, b) + .05) / (Math.min(a, b) + .05)""", name)
            check(ratio >= 4.5, f"{scheme} {name}: {ratio:.2f}")
    clean(b)


def test_print():
    b = opened("gpt2", "dark")
    path, theme = scratch("report.pdf"), b.run("return document.documentElement.dataset.theme")
    b.print(path)
    with open(path, "rb") as f:
        data = f.read()
    check(data.startswith(b"%PDF") and len(data) > 50000, len(data))
    if subprocess.run(["sh", "-c", "command -v pdftotext"], capture_output=True).returncode == 0:
        text = subprocess.run(["pdftotext", "-layout", path, "-"], capture_output=True, text=True).stdout
        for words in ("Memory over the run", "At the peak", "Who owns the peak", "Inside the allocator", "What this rests on", "more rows"):
            check(words in text, words)
    equal(b.run("return document.documentElement.dataset.theme"), theme, "the screen is as before")
    clean(b)


def test_narrow():
    b = opened("gpt2-too-large", "light", 380)
    check(not b.run("return document.body.scrollWidth > innerWidth"), "nothing sticks out")
    clean(b)


def test_settings_to_paste():
    b = opened("gpt2-too-large")
    b.run("document.querySelector('.move details').open = true")
    text = b.run("return document.querySelector('.move .pane:not([hidden]) pre').textContent")
    equal(text, reports.document("gpt2-too-large")["suggestions"][0]["settings"]["pytorch"].rstrip(), "PyTorch's settings")
    b.run("[...document.querySelectorAll('.move details .choices button')].find(x => x.textContent === 'DeepSpeed').click()")
    check("{" in b.run("return document.querySelector('.move .pane:not([hidden]) pre').textContent"), "DeepSpeed's are JSON")
    command = b.run("return [...document.querySelectorAll('.move .pane')].pop().textContent")
    check("memplan" in command and "--gpu 8GiB" in command, command)
    clean(b)


def test_names_stay_words():
    from cases_page import EVIL, evil_model
    from support import write
    path, out = write("evil.onnx", evil_model()), scratch("evil.html")
    check(memplan(path, "--gpu", "l4", "--format", "html", "-o", out).code in (0, 1), "made")
    b = browser()
    b.open(out)
    for name in EVIL[:3]:
        b.run("const s = document.getElementById('search'); s.value = arguments[0].slice(0, 9); s.dispatchEvent(new Event('input'))", name)
        time.sleep(0.2)
    equal(b.run("return document.querySelectorAll('#report img, #report script, #report svg[onload]').length"), 0, "no element came of a name")
    clean(b)


def test_a_hundred_thousand_tensors():
    """Loaded in 3 s, and then a search takes less than half a second."""
    import json
    saved, out = scratch("many.json"), scratch("many.html")
    with open(saved, "w") as f:
        json.dump(synthetic.document(100_000), f)
    answer = memplan("report", saved, "--format", "html", "-o", out, timeout=120)
    check(answer.code == 0, answer.err)
    check(os.path.getsize(out) < 20_000_000, f"{os.path.getsize(out)} bytes")
    b = browser()
    b.resize(1280, 900)
    tries = []
    for _ in range(3):
        before = b.processor_seconds()
        wall = b.open(out)
        tries.append((min(wall, b.processor_seconds() - before), wall))
    # Other work on the machine is no fault of the page: processor time of all of the browser's processes counts as well.
    seconds, wall = min(tries)
    print(f"100,000 tensors: {os.path.getsize(out) / 1e6:.1f} MB, loaded in {seconds:.2f} s of processor time ({wall:.2f} s by the clock)")
    check(seconds <= 3, f"{seconds:.1f} s")
    check(found(b).startswith("100,000 tensors") or found(b).startswith("99,"), found(b))
    check(len(rows(b)) < 60, "only rows in sight are in the page")
    before = b.processor_seconds()
    b.run("document.getElementById('fold').click()")
    check(b.processor_seconds() - before < 1.5, "unfolding")
    b.run("document.querySelector('.scroller').scrollTop = 1e9")
    time.sleep(0.3)
    check(len(rows(b)) > 5, "rows at the very end")
    b.run("document.querySelector('.chart').focus()")
    b.key("ArrowLeft")
    check("Alive" in b.run("return document.querySelector('.live').textContent"), "the chart answers")
    clean(b)


def pages():
    """Pages beside the plain report: with a gate and a baseline, of several ranks, a comparison, and a red gate."""
    from support import model
    made = {name: scratch(name + ".html") for name in ("gated", "ranks", "diff", "check")}
    words = ("--gpu", "24GB", "--seq", "256", "--exit-zero")
    memplan(model("gpt2"), *words, "--batch", "2", "--no-search", "--format", "json", "-o", scratch("gate-base.json"))
    answers = [memplan(model("gpt2"), *words, "--batch", "8", "--baseline", scratch("gate-base.json"), "--max-increase", "1%", "--format", "html", "-o", made["gated"], timeout=300),
               memplan(model("gpt2"), *words, "--batch", "4", "--gpus", "4", "--pp", "2", "--no-search", "--format", "html", "-o", made["ranks"], timeout=300),
               memplan("diff", model("gpt2"), "--gpu", "24GB", "--seq", "256", "--batch", "2", "--to", "--batch 8", "--format", "html", "-o", made["diff"], timeout=300)]
    from cases_gate import Repository
    r = Repository()
    r.run("baseline", "write")
    r.change("batch = 2\n", "batch = 8\n")
    answers.append(r.run("check", "--exit-zero", "--format", "html", "-o", made["check"], timeout=300))
    for a in answers:
        equal(a.code, 0, a.err)
    return made


def test_pages_of_gates_comparisons_and_ranks():
    """Real documents: what stands on the page is what the documents say, in light and dark, wide and narrow."""
    made = pages()
    wanted = {"gated": (["verdict", "gate", "diff"], ["Smallest change that passes", "regression", "batch: 2 → 8", "Against the baseline"]),
              "ranks": (["verdict", "ranks"], ["pipeline rank 0", "pipeline rank 1"]),
              "diff": (["verdict", "diff"], ["Peak grows by", "What moved", "batch: 2 → 8", "By kind", "By module", "By tensor"]),
              "check": (["verdict", "target-0", "target-1"], ["1 of 2 targets fails", "Smallest change that passes", "accumulate = ", "Talk to the training team"])}
    b = browser()
    for name, (ids, words) in wanted.items():
        for scheme, width in (("light", 1280), ("dark", 390)):
            b.resize(width, 900)
            b.scheme(scheme)
            b.open(made[name])
            shown = b.run("return [...document.querySelectorAll('section')].map(s => s.id)")
            check([i for i in shown if i in ids] == ids, f"{name}: {shown}")
            text = b.run("return document.querySelector('main').innerText")
            for word in words:
                check(word in text, f"{name}: {word!r} is not on the page")
            check("undefined" not in text and "NaN" not in text and "[object" not in text, name)
            check(not b.run("return document.body.scrollWidth > document.documentElement.clientWidth"), f"{name}: something sticks out at {width}")
            clean(b)
    b.resize(1280, 900)
    b.scheme("light")
    b.open(made["gated"])
    import json
    import re
    with open(made["gated"]) as f:
        d = json.loads(re.search(r'<script type="application/json" id="report-data">(.*?)</script>', f.read(), re.S)[1])
    change = b.run("return document.querySelector('#diff .lead').textContent")
    check(f"{d['diff']['summary']['change_percent']:.1f} %" in change, change)
    check(d["accuracy"] and d["accuracy"][0] in b.run("return document.querySelector('#basis').textContent"), "accuracy from data")


def test_browsers_go_with_their_tests():
    """A test that is killed in the middle leaves neither a driver nor a Chromium behind."""
    import signal
    import sys
    script = "import sys; sys.path.insert(0, sys.argv[1]); from browser import Browser; b = Browser(); print(b.driver.pid, b.profile, flush=True); import time; time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", script, os.path.dirname(os.path.abspath(__file__))], stdout=subprocess.PIPE, text=True)
    driver, profile = process.stdout.readline().split()
    process.send_signal(signal.SIGKILL)
    process.wait()

    def left():
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    if pid == driver or profile.encode() in f.read():
                        with open(f"/proc/{pid}/stat") as stat:
                            if stat.read().rpartition(")")[2].split()[0] != "Z":
                                found.append(pid)
            except OSError:
                pass
        return found

    for _ in range(100):
        if not left():
            break
        time.sleep(0.1)
    equal(left(), [], "processes that outlive their test")
    import shutil
    shutil.rmtree(profile, ignore_errors=True)
