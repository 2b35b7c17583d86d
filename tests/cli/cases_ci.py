"""The GitHub action, the GitLab template and the pre-commit hooks, run step by step as their services would."""
import http.server
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import threading

import yaml
from cases_gate import CONFIG, Repository
from support import BUILD, ROOT, SCRATCH, check, equal

MEMPLAN = os.path.join(BUILD, "memplan")


def load(path):
    with open(os.path.join(ROOT, path)) as f:
        return yaml.safe_load(f)


class Service(http.server.BaseHTTPRequestHandler):
    """As much of GitHub's API as comments need."""
    comments, calls, refuse = [], [], None

    def answer(self, body, code=200):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def handle_one(self, method):
        Service.calls.append((method, self.path))
        if Service.refuse and method != "GET":
            return self.answer({"message": "Resource not accessible by integration"}, Service.refuse)
        if method == "GET":
            return self.answer(Service.comments)
        if method == "POST":
            Service.comments.append({"id": len(Service.comments) + 1, "body": self.body()["body"]})
        else:
            next(c for c in Service.comments if self.path.endswith(f"/{c['id']}"))["body"] = self.body()["body"]
        self.answer({})

    do_GET = lambda self: self.handle_one("GET")
    do_POST = lambda self: self.handle_one("POST")
    do_PATCH = lambda self: self.handle_one("PATCH")
    log_message = lambda self, *args: None


SERVER = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
threading.Thread(target=SERVER.serve_forever, daemon=True).start()


def run_action(repository, event="pull_request", **inputs):
    """The steps of action.yml as a runner executes them: (exit code, output, step summary, outputs by step)."""
    action = load("action.yml")
    given = {name: str(spec.get("default", "")) for name, spec in action["inputs"].items()} | {k.replace("_", "-"): v for k, v in inputs.items()}
    outputs = {}
    folder = tempfile.mkdtemp(dir=SCRATCH.name)
    summary = os.path.join(folder, "summary")

    def value(text):
        def one(match):
            name = match[1].strip()
            if name.startswith("inputs."):
                return given[name[7:]]
            if name.startswith("steps."):
                _, step, _, output = name.split(".")
                return outputs.get(step, {}).get(output, "")
            return {"github.action_path": ROOT, "github.event_name": event, "github.event.pull_request.number": "7", "github.token": "secret"}[name]
        return re.sub(r"\$\{\{(.*?)\}\}", one, text)

    printed, code = "", 0
    for step in action["runs"]["steps"]:
        if "if" in step:
            expression = step["if"].replace("inputs.comment", repr(given["comment"])).replace("github.event_name", repr(event)).replace("&&", "and")
            if not eval(expression):
                continue
        output = os.path.join(folder, step["id"])
        open(output, "w").close()
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "GITHUB_OUTPUT": output, "GITHUB_STEP_SUMMARY": summary, "GITHUB_REPOSITORY": "team/project",
                       "GITHUB_API_URL": f"http://127.0.0.1:{SERVER.server_port}", "LC_ALL": "C.UTF-8"} | {k: value(v) for k, v in step.get("env", {}).items()}
        done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", value(step["run"])], cwd=repository.path, env=environment, capture_output=True, text=True, timeout=120)
        printed += done.stdout + done.stderr
        with open(output) as f:
            outputs[step["id"]] = dict(line.rstrip("\n").split("=", 1) for line in f)
        code = done.returncode
        if code:
            break
    text = open(summary).read() if os.path.exists(summary) else ""
    return code, printed, text, outputs


def repository(batch):
    r = Repository()
    r.run("baseline", "write")
    if batch != 2:
        r.change("batch = 2\n", f"batch = {batch}\n")
    return r


def test_action_green_and_red():
    code, printed, summary, outputs = run_action(repository(2), memplan=MEMPLAN)
    equal((code, outputs["check"]["verdict"]), (0, "passed"), printed)
    check("all 2 targets pass" in summary, summary)
    check(not re.search(r"^::", printed, re.M), "annotations of a green gate")
    r = repository(8)
    code, printed, summary, outputs = run_action(r, memplan=MEMPLAN)
    equal((code, outputs["check"]["verdict"], outputs["check"]["exit-code"]), (1, "failed", "1"), printed)
    check("1 of 2 targets fails" in summary and "Smallest change that passes" in summary, "the summary is written although the gate is red\n" + summary)
    check(re.search(r"^::error file=memplan\.toml,line=19,", printed, re.M), printed)
    for name in ("report-json", "report-md", "sarif"):
        check(r.has(outputs["check"][name]), name)
    equal(run_action(r, memplan=MEMPLAN, fail_on="no-fit")[0], 0)
    equal(run_action(r, memplan=MEMPLAN, targets="small")[0], 0)
    code, printed, summary, _ = run_action(r, memplan=MEMPLAN, targets="small large")
    equal(code, 1)


def test_action_with_a_broken_configuration():
    r = repository(2)
    r.configure("[[target]\n")
    code, printed, summary, outputs = run_action(r, memplan=MEMPLAN)
    equal((code, outputs["check"]["verdict"]), (2, "error"))
    check("not TOML" in summary and "::error title=memplan::" in printed, printed + summary)
    code, printed, _, _ = run_action(r, memplan="/nowhere/memplan")
    equal(code, 2)


def test_action_finds_memplan():
    r = repository(2)
    old = os.environ["PATH"]
    os.environ["PATH"] = BUILD + os.pathsep + old
    try:
        code, printed, _, outputs = run_action(r)
    finally:
        os.environ["PATH"] = old
    equal((code, outputs["find"]["memplan"]), (0, MEMPLAN), printed)


def test_action_comments_once():
    Service.comments, Service.calls, Service.refuse = [{"id": 1, "body": "looks good"}], [], None
    r = repository(2)
    run_action(r, memplan=MEMPLAN, comment="on-change")
    equal(len(Service.comments), 1, "nothing moved, nothing is said")
    r.change("batch = 2\n", "batch = 8\n")
    equal(run_action(r, memplan=MEMPLAN, comment="on-change")[0], 1)
    equal(len(Service.comments), 2)
    check(Service.comments[1]["body"].startswith("<!-- memplan-gate -->") and "grows" in Service.comments[1]["body"], Service.comments[1])
    r.change("batch = 8\n", "batch = 2\n")
    run_action(r, memplan=MEMPLAN, comment="on-change")
    equal(len(Service.comments), 2, "the comment is replaced, not repeated")
    check("all 2 targets pass" in Service.comments[1]["body"], Service.comments[1])
    Service.calls.clear()
    run_action(r, memplan=MEMPLAN)
    run_action(r, memplan=MEMPLAN, comment="always", event="push")
    equal(Service.calls, [], "comments only where they are wanted, on pull requests")


def test_action_on_a_fork():
    """A token that may only read: a notice, and the gate's own verdict."""
    Service.comments, Service.calls, Service.refuse = [], [], 403
    try:
        for batch, verdict in ((2, 0), (8, 1)):
            code, printed, summary, _ = run_action(repository(batch), memplan=MEMPLAN, comment="always")
            equal(code, verdict, printed)
            check("::notice title=memplan::no comment was written (the service answered 403)" in printed, printed)
            check(summary, "no summary")
    finally:
        Service.refuse = None


def test_gitlab_template():
    job = load("ci/gitlab.yml")["memplan"]
    r = repository(8)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"} | job["variables"] | {"MEMPLAN": MEMPLAN}
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", "\n".join(job["script"])], cwd=r.path, env=environment, capture_output=True, text=True)
    equal(done.returncode, 1, done.stderr)
    equal(job["artifacts"]["when"], "always", "the reports of a red gate are what people want")
    for path in [*job["artifacts"]["paths"], *job["artifacts"]["reports"].values()]:
        check(r.has(path), path)
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", "\n".join(job["script"])], cwd=r.path, env=environment | {"MEMPLAN_ARGUMENTS": "--fail-on no-fit small"}, capture_output=True, text=True)
    equal(done.returncode, 0, done.stderr)


def test_pre_commit_hooks():
    for hook in load(".pre-commit-hooks.yaml"):
        check({"id", "name", "entry", "language", "files"} <= set(hook), hook)
        equal(hook["pass_filenames"], False)
        for path, matched in (("a/net.onnx", True), ("memplan.toml", True), ("x/memplan.toml", True), (".memplan/baseline.json", True), ("net.pt2", True), ("README.md", False), ("onnx.py", False)):
            equal(bool(re.search(hook["files"], path)), matched, path)
        for batch, code in ((2, 0), (8, 1)):
            words = shlex.split(hook["entry"])
            if hook["language"] == "script":  # a path in the hooks' own repository
                words[0] = os.path.join(ROOT, words[0])
            done = subprocess.run(words, cwd=repository(batch).path, env={"PATH": BUILD + os.pathsep + os.environ["PATH"]}, capture_output=True, text=True)
            equal(done.returncode, code, done.stderr)


def test_scripts_are_clean():
    for name in ("find.sh", "github.sh", "hook.sh", "install.sh"):
        path = os.path.join(ROOT, "ci", name)
        check(os.stat(path).st_mode & stat.S_IXUSR, f"{name} is not executable")
        equal(subprocess.run(["bash", "-n", path], capture_output=True).returncode, 0, name)
        if shutil.which("shellcheck"):
            done = subprocess.run(["shellcheck", path], capture_output=True, text=True)
            equal(done.stdout, "", name)
