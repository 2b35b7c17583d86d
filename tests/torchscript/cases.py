"""Cases of TorchScript files. Those named torch_test_* need memplan-torch and its PyTorch."""
import json
import os
import pickle
import random
import resource
import subprocess
import tempfile
import time
import zipfile

import other_versions
from common import BUILD, TORCH, build_tree, memplan, python, report

SCRATCH = tempfile.TemporaryDirectory(prefix="memplan-torchscript-")


def archive(name, members, compressed=()):
    path = os.path.join(SCRATCH.name, name)
    with zipfile.ZipFile(path, "w") as z:
        for member, data in members.items():
            z.writestr(member, data, zipfile.ZIP_DEFLATED if member in compressed else zipfile.ZIP_STORED)
    return path


def script_members(**extra):
    """Enough to be taken for TorchScript."""
    return {"m/data.pkl": b"\x80\x02.", "m/constants.pkl": b"\x80\x02).", "m/version": b"3\n", "m/code/__torch__.py": b"", **extra}


class Evil:
    def __reduce__(self):
        return os.system, (f"touch {os.path.join(SCRATCH.name, 'executed')}",)


def refused(path, *must_say, code=3, **kw):
    """One line, no crash, soon, in little memory, and no code of the file has run."""
    def small():
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

    started = time.monotonic()
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MEMPLAN_")} | kw.get("env", {})
    done = subprocess.run([os.path.join(BUILD, "memplan"), path, "--input", "float32:1,3", *kw.get("words", ())], capture_output=True, text=True, env=clean,
                          preexec_fn=None if kw.get("companion") or build_tree.sanitized(BUILD) else small, timeout=120)
    assert done.returncode == code, f"{os.path.basename(path)}: {done.returncode} {done.stderr}"
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and done.stdout == "", done.stderr
    for text in must_say:
        assert text in done.stderr, f"{text!r} is missing in: {done.stderr}"
    assert time.monotonic() - started < 60
    assert not os.path.exists(os.path.join(SCRATCH.name, "executed"))


def test_hostile_archives_never_reach_libtorch():
    nowhere = {"env": {"MEMPLAN_TORCH": "/nonexistent"}}
    bomb = b"\0" * (300 << 20)
    refused(archive("bomb.pt", script_members(**{"m/code/bomb.py": bomb}), ["m/code/bomb.py"]), "zip bomb", **nowhere)
    refused(archive("data.pt", script_members(**{"m/data/0": bomb}), ["m/data/0"]), "compressed", **nowhere)
    refused(archive("climbs.pt", script_members(**{"../../climbs": b""})), "outside", **nowhere)
    whole = open(archive("whole.pt", script_members(**{"m/data/0": b"\0" * 4096})), "rb").read()
    cut = os.path.join(SCRATCH.name, "cut.pt")
    with open(cut, "wb") as f:
        f.write(whole[: len(whole) // 2])
    refused(cut, "zip archive", **nowhere)
    # Sizes in the directory that the file does not have.
    liar = bytearray(whole)
    at = liar.rindex(b"PK\1\2")
    liar[at + 24:at + 28] = b"\xff\xff\xff\x7f"
    lies = os.path.join(SCRATCH.name, "lies.pt")
    with open(lies, "wb") as f:
        f.write(liar)
    refused(lies, **nowhere)


def test_pickles_are_never_executed():
    evil = pickle.dumps(Evil(), protocol=2)
    refused(archive("state.pt", {"m/data.pkl": evil, "m/version": b"3\n"}), "no graph")
    legacy = os.path.join(SCRATCH.name, "legacy.pt")
    with open(legacy, "wb") as f:
        f.write(evil)
    refused(legacy, "never opened")
    refused(archive("many.pt", {"m/data.pkl": evil} | {f"m/data/{i}": b"\0" * 64 for i in range(5000)}), "5000 tensors")


def test_one_clear_line_without_libtorch():
    path = archive("plain.pt", script_members())
    refused(path, "memplan-torch", code=2, env={"MEMPLAN_TORCH": "/nonexistent"})


def test_other_files_take_no_inputs():
    done = memplan("data/models/mlp.onnx", "--input", "x:float32:4,784")
    assert done.returncode == 2 and "--input" in done.stderr and "--batch" in done.stderr, done.stderr
    for bad in ("x:float33:4", "x", "x:float32:4,-1", "x:float32:4,a b"):
        done = memplan("data/models/mlp.onnx", "--input", bad)
        assert done.returncode == 2 and "--input" in done.stderr, done.stderr


def test_schema_versions_of_torch_export():
    other_versions.unknown_schemas(SCRATCH.name)


def test_in_place_dropout_rests_in_inference():
    """What PyTorch says on the emulated h100-80gb: reference_program.py --model mobilenet_v3_large --batch 2 --mode inference. The
    noise of a dropout_ that model.eval() leaves on would make the first step's peak, which is at the end."""
    for path in ("data/models/mobilenet_v3_large.onnx", "data/models/pt2/mobilenet_v3_large.pt2"):
        steps = report(path, "--mode", "inference", "--batch", 2, "--gpu", "h100-80gb")["steps"]
        assert [s["peak"]["requested_bytes"] for s in steps] == [22030096, 57863248, 72296016, 72296016], (path, steps)


# --- with PyTorch ------------------------------------------------------------------------------------------------------

HEAD = "import torch\nfrom torch import nn\nfrom typing import List, Optional, Dict, Tuple\n"
SOURCES = {}  # name: (class M, how it is saved)


def source(name, code, how="torch.jit.script(M())"):
    SOURCES[name] = (code, how)


def path_of(name):
    return os.path.join(SCRATCH.name, name + ".pt")


def made(name):
    """A TorchScript file of SOURCES. One process makes all of them: importing PyTorch takes its time."""
    if not os.path.exists(path_of(name)):
        for n, (code, how) in SOURCES.items():
            with open(os.path.join(SCRATCH.name, n + ".py"), "w") as f:
                f.write(HEAD + code + f"\n{how}.save({path_of(n)!r})\n")
        words = [os.path.join(SCRATCH.name, n + ".py") for n in SOURCES]
        done = subprocess.run([TORCH, "-W", "ignore", "-c", "import runpy, sys\nfor path in sys.argv[1:]: runpy.run_path(path, run_name='made')", *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-1500:]
    return path_of(name)


def torch_test_loaders_refuse_what_memplan_lets_through():
    evil = pickle.dumps(Evil(), protocol=2)
    refused(archive("evil.pt", script_members(**{"m/data.pkl": evil, "m/constants.pkl": evil})), "LibTorch", companion=True)
    refused(archive("empty.pt", script_members()), "LibTorch", companion=True)


def hurt(name, change):
    """An archive of PyTorch's own with some members replaced: change(member's name, its bytes)."""
    with zipfile.ZipFile(os.path.join(other_versions.FILES, "torch-2.11.0.script.pt")) as old:
        return archive(f"hurt-{name}.pt", {m: change(m.split("/", 1)[1], old.read(m)) for m in old.namelist()})


def with_code(name, line):
    """The forward method begins with another line."""
    return hurt(name, lambda member, data: data.replace(b"    norm =", line.encode() + b"\n    norm =", 1) if member == "code/__torch__/small.py" else data)


def torch_test_what_is_nested_deeply_is_refused():
    refused(with_code("parentheses", "    z = " + "(" * 100_000 + "1" + ")" * 100_000), "TorchScript file", companion=True)
    refused(with_code("sums", "    z = 1" + " + 1" * 200_000), "TorchScript file", companion=True)
    refused(with_code("itself", "    z = self.forward(x, )"), "TorchScript file", companion=True)
    refused(hurt("lists", lambda m, d: b"\x80\x02" + b"]" * 1_000_000 + b"a" * 999_999 + b"." if m == "data.pkl" else d), "TorchScript file", companion=True)
    refused(hurt("marks", lambda m, d: b"\x80\x02" + b"(" * 2_000_000 + b"." if m == "data.pkl" else d), "TorchScript file", companion=True)


def torch_test_pickles_inside_of_programs_are_not_executed():
    evil = pickle.dumps(Evil(), protocol=2)
    for member in ("data.pkl", "constants.pkl"):
        refused(hurt("evil-" + member, lambda m, d: evil if m == member else d), "LibTorch cannot load", companion=True)
    # Proof that the pickle would have done something.
    pickle.loads(evil)
    assert os.path.exists(os.path.join(SCRATCH.name, "executed"))
    os.remove(os.path.join(SCRATCH.name, "executed"))


def torch_test_huge_counts():
    # What the pickle says of a tensor's sizes is all there is, and it may say anything: what no device holds is refused.
    sizes = b"\x8a\x08" + (1 << 60).to_bytes(8, "little") + b"K\x10"
    refused(hurt("sizes", lambda m, d: d.replace(b"K2K\x10", sizes) if m == "data.pkl" else d), companion=True)
    refused(with_code("range", "    for i in range(1000000000000):\n      x = torch.add(x, i)"), "more steps", companion=True)
    refused(with_code("list", "    x = torch.reshape(x, [1] * 1000000000000)"), companion=True)
    refused(with_code("text", "    x = torch.add(x, torch.len(torch.mul(\"a\", 1000000000000)))"), companion=True)


def torch_test_damaged_archives():
    """Cut off or with wrong bytes in the texts that LibTorch reads: an answer or a clear refusal, soon."""
    with open(os.path.join(other_versions.FILES, "torch-2.11.0.script.pt"), "rb") as f:
        whole = f.read()
    random.seed(5)
    for i in range(12):
        data = bytearray(whole)
        if i < 4:
            data = data[: random.randrange(1000, len(whole))]
        else:
            for _ in range(40):
                data[random.randrange(len(data))] = random.randrange(256)
        path = os.path.join(SCRATCH.name, f"damaged-{i}.pt")
        with open(path, "wb") as f:
            f.write(data)
        done = memplan(path, "--input", "int64:batch,12", "--no-search", "--exit-zero", timeout=60)
        assert done.returncode in (0, 3) and (done.returncode == 0 or (done.stderr.startswith("error: ") and done.stderr.count("\n") == 1)), f"{i}: {done.returncode} {done.stderr}"


source("asks", "class M(nn.Module):\n  def forward(self, x, y: Optional[torch.Tensor] = None, k: int = 3):\n    return x * k\n")


def torch_test_asks_for_shapes():
    path = made("asks")
    done = memplan(path)
    assert done.returncode == 3 and "--input x:float32:" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert memplan(path, "--input", "z:float32:1").returncode == 2
    assert memplan(path, "--input", "k:int64:1").returncode == 2
    whole = report(path, "--input", "x:float32:batch,10", "--batch", 6, "--mode", "inference")
    assert whole["input"]["inputs"] == [{"name": "x", "dtype": "float32", "shape": [6, 10]}]
    assert report(path, "--input", "float32:6,10", "--mode", "inference")["summary"] == whole["summary"]


CONTROL = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)])
        self.drop = nn.Dropout(0.1)
    def forward(self, x):
        for layer in self.layers:
            x = self.drop(layer(x))
        if x.dim() != 2:
            raise ValueError("two dimensions")
        return x
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.head = Block(), nn.Linear(16, 4)
        self.table = {"a": 1, "b": 2}
    def forward(self, x):
        parts: List[torch.Tensor] = []
        for i in range(x.size(0) // 2):
            parts.append(x[2 * i : 2 * i + 2])
        if len(parts) > 1 and x.shape[1] == 16:
            x = torch.cat(parts)
        n = 0
        while n < 3 and n < self.table["b"]:
            x = self.block(x)
            n += 1
        a, b = x.split(8, 1)
        return self.head(torch.cat([a, b], -1))
"""


source("control", CONTROL)
# The same program, exported.
source("control_export", CONTROL + f"torch.export.save(torch.export.export(M(), (torch.randn(8, 16),)), {os.path.join(SCRATCH.name, 'control.pt2')!r})\n")


def torch_test_control_flow_is_resolved():
    path = made("control")
    whole = report(path, "--input", "float32:batch,16", "--batch", 8)
    assert not whole["unmodelled"] and whole["input"]["parameters"] == 3 * (16 * 16 + 16) + 16 * 4 + 4
    assert not [w for w in whole["warnings"] if w["code"] in ("MP013", "MP014")]
    other = report(os.path.join(SCRATCH.name, "control.pt2"))
    assert [s["peak"]["requested_bytes"] for s in whole["steps"]] == [s["peak"]["requested_bytes"] for s in other["steps"]]
    done = memplan(path, "--input", "float32:2,16,16")
    assert done.returncode == 3 and done.stderr.count("\n") == 1, done.stderr


source("data", "class M(nn.Module):\n  def forward(self, x):\n    if x.sum() > 0:\n      x = x * 2\n      x = x + 1\n    else:\n      x = x - 1\n    return x\n")
source("size", "class M(nn.Module):\n  def forward(self, x):\n    n = int(x.max())\n    return torch.zeros(n, 4) + x.sum()\n")
source("endless", "class M(nn.Module):\n  def forward(self, x):\n    i = 0\n    while i >= 0:\n      i += 1\n    return x * i\n")


def torch_test_what_data_decide_is_named():
    whole = report(made("data"), "--input", "float32:4,4", "--mode", "inference")
    assert [w for w in whole["warnings"] if w["code"] == "MP014"], whole["warnings"]
    refused(made("size"), "only data decide", companion=True)
    refused(made("endless"), "more steps", companion=True)


NORMED = "class M(nn.Module):\n  def __init__(self):\n    super().__init__()\n    self.a, self.n = nn.Linear(64, 64), nn.BatchNorm1d(64)\n    self.d = nn.Dropout(0.5)\n  def forward(self, x):\n    return self.d(torch.relu(self.n(self.a(x))))\n"
source("modes_s", NORMED)
source("modes_t", NORMED, "torch.jit.trace(M(), torch.randn(8, 64), check_trace=False)")
source("modes_f", NORMED, "torch.jit.freeze(torch.jit.script(M().eval()))")


def torch_test_modes():
    script, trace, frozen = made("modes_s"), made("modes_t"), made("modes_f")
    for mode in ("training", "inference"):
        a, b = (report(p, "--input", "float32:batch,64", "--batch", 32, "--mode", mode) for p in (script, trace))
        assert a["counters"] == b["counters"], (mode, a["counters"], b["counters"])
    c = report(frozen, "--input", "float32:batch,64", "--batch", 32, "--mode", "inference")
    assert c["input"]["trainable_parameters"] == 0 and c["counters"]["requested_bytes"] > 0


TIED = "class M(nn.Module):\n  def __init__(self):\n    super().__init__()\n    self.e, self.h = nn.Embedding(100, 16), nn.Linear(16, 100, bias=False)\n    self.h.weight = self.e.weight\n    self.l = nn.LSTM(16, 16, 2, batch_first=True)\n  def forward(self, x):\n    return self.h(self.l(self.e(x))[0])\n"
source("ties_s", TIED)
source("ties_t", TIED, "torch.jit.trace(M(), torch.zeros(2, 5, dtype=torch.long), check_trace=False)")


def torch_test_ties_and_names():
    for name in ("ties_s", "ties_t"):
        whole = report(made(name), "--input", "int64:2,5")
        assert whole["input"]["parameters"] == 100 * 16 + 2 * (4 * 16 * 16 * 2 + 2 * 64), whole["input"]
        assert not whole["unmodelled"]


source("big", "class M(nn.Module):\n  def __init__(self):\n    super().__init__()\n    self.l = nn.ModuleList([nn.Linear(2048, 2048) for _ in range(6)])\n  def forward(self, x):\n    for l in self.l:\n      x = l(x)\n    return x\n")


def torch_test_weights_are_not_read():
    path = made("big")
    assert os.path.getsize(path) > 96 << 20
    done = subprocess.run([os.path.join(BUILD, "memplan-torch"), "read-torchscript"], input=json.dumps({"path": path}), capture_output=True, text=True,
                          env={**os.environ, "LD_LIBRARY_PATH": os.path.join(os.path.dirname(python("import torch; print(torch.__file__)").strip()), "lib")})
    reply = json.loads(done.stdout)["reply"]
    assert reply["bytes_read"] < 1 << 20, reply["bytes_read"]
    os.remove(path)
