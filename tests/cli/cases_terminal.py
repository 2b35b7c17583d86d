"""Looks: width, colours, ASCII, names that attack the terminal; help, completions and the manual page."""
import os
import re
import shutil
import subprocess

from support import BUILD, ROOT, check, dense, equal, memplan, model, on_terminal, onnx_bytes, scratch, tensor, weight, write

GPT2 = (model("gpt2"), "--gpu", "24GB", "--seq", "1024", "--batch", "8")


def test_width(width):
    for words in (GPT2, ("explain", *GPT2), ("devices",), ("devices", "h100-80gb"), ("explain", *GPT2, "--tensor", "lm_head")):
        for line in memplan(*words, "--width", width).out.splitlines():
            # A word longer than the line, such as a path to paste, is never broken.
            check(len(line) <= width or " " not in line.strip() or "memplan" in line or len(max(line.split(), key=len)) > width // 2, f"{len(line)} columns: {line}")


test_width.cases = [(60,), (80,), (100,), (140,)]


def test_default_is_short():
    lines = memplan(*GPT2, "--no-search").out.splitlines()
    check(len(lines) <= 45, f"{len(lines)} lines")
    check(max(map(len, lines)) <= 100, max(lines, key=len))


def test_ascii():
    for words in (GPT2, ("explain", *GPT2), ("devices",), ("--help",)):
        out = memplan(*words, "--ascii").out if words != ("--help",) else memplan(*words).out
        check(out.isascii(), [c for c in out if not c.isascii()])


def test_colours():
    plain = memplan(*GPT2).out
    check("\x1b" not in plain, "colours in a pipe")
    painted = memplan(*GPT2, "--color", "always").out
    check("\x1b[" in painted, "no colours although asked for")
    equal(re.sub(r"\x1b\[[0-9;]*m", "", painted), plain, "colours must change nothing else")
    check("\x1b" not in memplan(*GPT2, "--color", "never").out, "colours although refused")


def shown(**env):
    return on_terminal(model("mlp"), "--no-search", env=env)


def test_terminal():
    check("\x1b[" in shown(), "colours on a terminal")
    check("\x1b[" in shown(NO_COLOR=""), "an empty NO_COLOR is not set (no-color.org)")
    check("\x1b[" not in shown(NO_COLOR="1"), "NO_COLOR")
    check("\x1b[" not in shown(TERM="dumb"), "TERM=dumb")
    check(shown(LC_ALL="C", NO_COLOR="1").isascii(), "ASCII where the locale has nothing else")


def without_line(text):
    """What is left on the terminal when the moving line is gone."""
    return re.sub(r"\r\x1b\[K[^\r\n]*(?=\r\x1b\[K)", "", text).replace("\r\x1b[K", "").replace("\r\n", "\n")


LONG = {  # what takes well over half a second, also on a machine that does nothing else, and what the line says meanwhile
    "estimate": ((model("densenet121"), "--gpu", "24GB", "--batch", "64", "--checkpoint", "optimal"), r"looking for|replaying the steps"),
    "suggest": (("suggest", model("gpt2"), "--gpu", "a10", "--gpus", "64", "--seq", "512", "--batch", "4", "--allow", "all"), r"estimated \d+ of at most \d+ setups|what each known trick saves"),
    "sweep": (("sweep", model("gpt2"), "--gpu", "24GB", "--batch", "1,2,3,4,5,6,7,8,9,10", "--seq", "128,256,384,512,640,768,896,1024", "--amp", "none,bf16"), r"\w+"),
}


def test_long_work_shows_a_line_on_a_terminal_only(name):
    words, says = LONG[name]
    text = on_terminal(*words, "--color", "never", columns=100)
    lines = re.findall(r"\r\x1b\[K([^\r\n]+)", text)
    check(any(re.search(says, line) for line in lines), f"{lines[:5]}")
    check(max(map(len, lines)) < 100, "the line is shorter than the terminal")
    piped = memplan(*words, "--width", "100")
    equal(without_line(text), piped.out, "the line is gone when the work is done")
    equal(piped.err, "", "nothing in a pipe")
    check("\r" not in on_terminal(*words, "--color", "never", env={"TERM": "dumb"}).replace("\r\n", ""), "a terminal that cannot move")


test_long_work_shows_a_line_on_a_terminal_only.cases = [(name,) for name in LONG]


def test_a_gate_shows_its_targets():
    from cases_gate import Repository
    targets = "".join(f'[[target]]\nname = "t{i}"\nmodel = "models/gpt2.onnx"\nbatch = 2\nseq = 512\ngpu = "24GB"\n' for i in range(100))
    r = Repository(targets, models=("gpt2",))
    text = on_terminal("check", "--color", "never", cwd=r.path)
    check(re.search(r"checking t\d+ \(\d+ of 100\)", text), text[:500])
    piped = r.run("check")
    equal(without_line(text), piped.out, "the line is gone when the work is done")
    equal(piped.err, "", "nothing in a pipe")


def test_the_width_of_the_terminal(columns):
    piped = memplan(*GPT2, "--no-search", "--width", min(columns, 100)).out
    for terminal in ({"columns": columns}, {"columns": 90, "env": {"COLUMNS": str(columns)}}):
        text = on_terminal(*GPT2, "--no-search", "--color", "never", **terminal)
        equal(without_line(text), piped, terminal)
    check(max(map(len, piped.splitlines())) <= columns, "no line is wider")
    equal(memplan(*GPT2, "--no-search", env={"COLUMNS": str(columns)}).out, memplan(*GPT2, "--no-search").out, "a pipe has no width")


test_the_width_of_the_terminal.cases = [(60,), (80,), (120,)]


def test_the_same_bytes_every_time():
    """The same words give the same bytes, whatever the place, the time and the looks of the environment."""
    from cases_gate import red_repository
    words = ((*GPT2, "--no-search"), (*GPT2, "--format", "json"), ("suggest", *GPT2, "--format", "json"), ("size", *GPT2), ("explain", *GPT2), ("diff", *GPT2, "--to", "--batch 4", "--format", "html"),
             (*GPT2, "--no-search", "--format", "html"))
    for w in words:
        first = memplan(*w, timeout=300)
        check(first.code in (0, 1) and first.out, first.err)
        equal(memplan(*w, env={"TZ": "Asia/Tokyo", "COLUMNS": "40", "TERM": "xterm-256color"}, timeout=300).out, first.out, w)
    r = red_repository()
    equal(r.run("check", "--format", "json").out, r.run("check", "--format", "json").out, "a gate with a fix")


def test_the_same_bytes_with_any_number_of_threads():
    for w in ((*GPT2, "--format", "json"), (model("resnet18"), "--gpu", "8GB", "--batch", "512", "--format", "json"), ("suggest", *GPT2, "--gpus", "4", "--format", "json"),
              (*GPT2, "--gpus", "4", "--pp", "4", "--micro-batches", "8", "--format", "json"),
              (model("t5-small"), "--gpu", "t4", "--accumulate", "2", "--qlora", "r=4", "--amp", "fp16", "--format", "json")):
        one = memplan(*w, env={"MEMPLAN_THREADS": "1"}, timeout=300)
        check(one.code in (0, 1) and one.out, one.err)
        for threads in ("2", "8"):
            equal(memplan(*w, env={"MEMPLAN_THREADS": threads}, timeout=300).out, one.out, w)


EVIL = "w\x1b[31m::error::\u202e\x07<b>"


def test_names_cannot_attack():
    path = write("evil.onnx", dense(name=EVIL))
    for words in ((path, "--no-search"), (path, "--format", "json", "--no-search"), ("explain", path), ("explain", path, "--tensor", "w"), ("ops", path),
                  ("explain", path, "--program")):
        answer = memplan(*words)
        for harmful in ("\x1b", "\u202e", "\x07", "\\u001b", "\\u202e"):
            check(harmful not in answer.out + answer.err, f"{harmful!r} in the output of {words}")
    broken = write("bytes.onnx", dense(name="wxyz").replace(b"wxyz", b"\xff\xfe\xc3("))
    out = memplan(broken, "--no-search", "--format", "json")
    check(out.code in (0, 3), out.err)
    out.json()


def test_quiet():
    answer = memplan(*GPT2, "--quiet")
    equal(answer.out.count("\n"), 1, answer.out)
    check(re.match(r"(fits|tight|no-fit|unknown)  peak ", answer.out), answer.out)


def test_gate():
    no_fit = (model("gpt2"), "--gpu", "t4", "--seq", "1024", "--batch", "32", "--quiet")
    equal(memplan(*no_fit).code, 1)
    equal(memplan(*no_fit, "--exit-zero").code, 0)
    equal(memplan(*no_fit, "--fail-on", "never").code, 0)
    equal(memplan(model("mlp"), "--quiet").code, 0, "without a GPU there is no verdict")
    tight = (model("mlp"), "--gpu", "2GiB", "--margin", "2000MiB", "--quiet")
    equal(memplan(*tight).out.split()[0], "tight")
    equal(memplan(*tight).code, 0)
    equal(memplan(*tight, "--fail-on", "tight,no-fit").code, 1)


def test_environment():
    equal(memplan(model("mlp"), "--quiet", env={"MEMPLAN_GPU": "t4"}).out, memplan(model("mlp"), "--quiet", "--gpu", "t4").out)
    equal(memplan(model("mlp"), "--quiet", "--gpu", "t4", env={"MEMPLAN_GPU": "l4"}).out, memplan(model("mlp"), "--quiet", "--gpu", "t4").out)
    wrong = memplan(model("mlp"), env={"MEMPLAN_BATCH": "lots"})
    equal(wrong.code, 2)


def test_spellings():
    same = {memplan(*words).out for words in ((model("mlp"), "--gpu", "t4", "-q"), ("estimate", model("mlp"), "--gpu=t4", "--quiet"), ("--gpu", "t4", "--quiet", model("mlp")))}
    equal(len(same), 1, same)


def test_pipe_closed_early():
    command = f"{os.path.join(BUILD, 'memplan')} explain {model('gpt2')} --seq 64 --top 0 | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, text=True)
    equal((done.returncode, done.stderr), (0, ""))


def test_help_shows_every_flag():
    text = memplan("--help").out
    for flag in ("--gpu", "--batch", "--seq", "--dim", "--amp", "--format", "--fail-on", "--no-search"):
        check(flag in text, flag)
    check("Device:" not in memplan().err, "a bare memplan lists commands, no flags")
    check(max(map(len, text.splitlines())) <= 100, max(text.splitlines(), key=len))
    for command in re.findall("^  ([a-z]+) .*", text.partition("commands:")[2].partition("\n\n")[0], re.M):
        answer = memplan(command, "--help")
        equal(answer.code, 0)
        check(max(map(len, answer.out.splitlines())) <= 100, max(answer.out.splitlines(), key=len))
        check(answer.out.startswith(f"usage: memplan {command}"), answer.out)
    nothing = memplan()
    equal((nothing.code, nothing.out), (2, ""))
    check("usage:" in nothing.err, nothing.err)


def test_completions():
    flags = set(re.findall(r"--[a-z-]+", memplan("--help").out))
    for shell, checker in (("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])):
        answer = memplan("completions", shell)
        equal(answer.code, 0, answer.err)
        names = set(re.findall(r"--[a-z-]+|-l [a-z-]+", answer.out))
        for flag in flags - {"--"}:
            check(flag in names or "-l " + flag[2:] in names or flag in answer.out, f"{flag} is missing for {shell}")
        if shutil.which(checker[0]):
            path = scratch("completions." + shell)
            with open(path, "w") as f:
                f.write(answer.out)
            done = subprocess.run([*checker, path], capture_output=True, text=True)
            equal((done.returncode, done.stderr), (0, ""), shell)
    equal(memplan("completions", "cmd").code, 2)


def test_bash_completes():
    script = f'source <({os.path.join(BUILD, "memplan")} completions bash); COMP_WORDS=(memplan m.onnx --optimizer sgd); COMP_CWORD=3; _memplan; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    equal(done.stdout.split(), ["sgd", "sgd-momentum"], done.stderr)


def test_manual_page():
    answer = memplan("man")
    equal(answer.code, 0)
    check(answer.out.startswith(".TH MEMPLAN 1"), answer.out[:50])
    for line in answer.out.splitlines():
        check(not line.startswith("'") and (not line.startswith(".") or re.match(r"\.(TH|SH|SS|TP|B|br)\b", line)), line)
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-Tascii", "-ww"], input=answer.out, capture_output=True, text=True)
        equal(done.stderr, "", "groff")


def test_version():
    check(re.fullmatch(r"memplan \d+\.\d+\.\d+\n", memplan("--version").out), memplan("--version").out)
    equal(memplan("--version").out, memplan("-V").out)


def test_devices():
    devices = memplan("devices", "--format", "json").json()
    check(len(devices) >= 40, len(devices))
    for d in devices:
        equal(memplan("devices", d["key"], "--format", "json").json(), d, d["key"])
    smallest = memplan("devices", "80GB").out
    check("80GB class" in smallest, smallest)
    exact = memplan("devices", "79GiB", "--format", "json").json()
    equal(exact["usable_bytes"], 79 * 2**30)
    equal(memplan("devices", "79.5GB", "--format", "json").json()["usable_bytes"], 79_500_000_000, "GB is 10^9 where no card is sold under it")
