"""What the cases of the command line share: running memplan, and building small ONNX files (also hostile ones)."""
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios

import onnx
from onnx import TensorProto, helper

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
sys.path[:0] = [os.path.join(ROOT, "tests", "accuracy"), os.path.join(ROOT, "tests")]
import build_tree
import zoo

BUILD = os.environ.get("MEMPLAN_BUILD", os.path.join(ROOT, "build", "release"))
SLOWER = 10 if build_tree.sanitized(BUILD) else 1  # the thread sanitizer's programs take about so much longer
SCRATCH = tempfile.TemporaryDirectory(prefix="memplan-cli-")


# Whatever PyTorch the machine has, convolutions are those of the tables; whatever was measured of its card, cards are too.
NO_CUDNN = {"MEMPLAN_PYTHON": "/nonexistent/python3", "XDG_CACHE_HOME": SCRATCH.name, "XDG_CONFIG_HOME": SCRATCH.name}


class Answer:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def json(self):
        return json.loads(self.out)


def memplan(*words, env=None, stdin=None, stdout=None, timeout=60, cwd=ROOT):
    """Runs memplan from the root of the repository (or `cwd`), in an environment without the variables that it reads."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MEMPLAN_") and k not in ("NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG")}
    clean |= {"LC_ALL": "C.UTF-8"} | NO_CUDNN | (env or {})
    done = subprocess.run([os.path.join(BUILD, "memplan"), *map(str, words)], cwd=cwd, env=clean, stdin=subprocess.DEVNULL,
                          stdout=stdout or subprocess.PIPE, stderr=subprocess.PIPE, timeout=SLOWER * timeout)
    return Answer(done.returncode, done.stdout.decode() if done.stdout else "", done.stderr.decode())


def on_terminal(*words, env=None, cwd=ROOT, columns=None):
    """What memplan prints where stdout and stderr are a terminal (of so many columns)."""
    master, slave = pty.openpty()
    if columns:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MEMPLAN_") and k not in ("NO_COLOR", "TERM", "COLUMNS", "LC_CTYPE", "LANG")} | {"LC_ALL": "C.UTF-8", "TERM": "xterm"} | NO_CUDNN | (env or {})
    process = subprocess.Popen([os.path.join(BUILD, "memplan"), *map(str, words)], cwd=cwd, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=clean)
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


def model(name):
    """The path of a model of data/models, relative where it lies in the repository, so that outputs do not depend on the machine."""
    return os.path.relpath(zoo.model_file(name), ROOT)


def scratch(name):
    return os.path.join(SCRATCH.name, name)


def write(name, data):
    path = scratch(name)
    with open(path, "wb") as f:
        f.write(data)
    return path


def tensor(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def weight(name, dims, external=None):
    """An initializer without contents: only dims and dtype, as memplan reads them."""
    t = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
    if external:
        t.data_location = TensorProto.EXTERNAL
        entry = t.external_data.add()
        entry.key, entry.value = "location", external
    return t


def onnx_bytes(nodes, inputs, outputs, weights=(), functions=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("local", 1)], functions=list(functions), ir_version=9)
    return made.SerializeToString()


def dense(hidden=8, name="w", **kw):
    """One matrix product: x[4, 8] @ w[8, hidden]."""
    return onnx_bytes([helper.make_node("MatMul", ["x", name], ["y"])], [tensor("x", [4, 8])], [tensor("y", [4, hidden])], [weight(name, [8, hidden], **kw)])


def equal(actual, expected, what=""):
    if actual != expected:
        raise AssertionError(f"{what}: {actual!r} is not {expected!r}")


def check(condition, what):
    if not condition:
        raise AssertionError(what)
