"""Looks: width, colours, ASCII, names that attack the terminal; help, completions and the manual page."""
import os
import pty
import re
import shutil
import subprocess

from support import BUILD, ROOT, check, dense, equal, memplan, model, onnx_bytes, scratch, tensor, weight, write

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


def on_terminal(env):
    """What memplan prints on a terminal."""
    master, slave = pty.openpty()
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")} | {"LC_ALL": "C.UTF-8", "TERM": "xterm"} | env
    process = subprocess.Popen([os.path.join(BUILD, "memplan"), model("mlp"), "--no-search"], cwd=ROOT, stdout=slave, stderr=slave, env=clean)
    os.close(slave)
    out = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        out += part
    process.wait()
    os.close(master)
    return out.decode()


def test_terminal():
    check("\x1b[" in on_terminal({}), "colours on a terminal")
    check("\x1b[" in on_terminal({"NO_COLOR": ""}), "an empty NO_COLOR is not set (no-color.org)")
    check("\x1b[" not in on_terminal({"NO_COLOR": "1"}), "NO_COLOR")
    check("\x1b[" not in on_terminal({"TERM": "dumb"}), "TERM=dumb")
    check(on_terminal({"LC_ALL": "C", "NO_COLOR": "1"}).isascii(), "ASCII where the locale has nothing else")


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
    tight = (model("mlp"), "--gpu", "1GiB", "--margin", "1000MiB", "--quiet")
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
    for command in ("estimate", "explain", "devices", "ops", "completions", "man"):
        check(command in text, command)
        answer = memplan(command, "--help")
        equal(answer.code, 0)
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
