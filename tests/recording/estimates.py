"""memplan.estimate() of a module, memplan.export() to ONNX and --confirm, on the emulated GPU: python estimates.py MEMPLAN LIBRARY, run by run.py."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python"), HERE]
import torch
from torch import nn

FACTORY = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 4096), nn.Linear(4096, 10)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))

def make():
    return Net(), (torch.zeros(32, 64),)
"""


class Hidden(torch.autograd.Function):
    """Saves four tensors where its ops would save one: no graph shows that."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(x, y, y + x, y * x)
        return y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.up, self.down = nn.Embedding(500, 256), nn.Linear(256, 1024), nn.Linear(1024, 500)

    def forward(self, ids):
        return self.down(Hidden.apply(self.up(self.embedding(ids))))


IDS = torch.zeros(4, 64, dtype=torch.long)
checks = []


def check(good, text):
    checks.append(bool(good))
    if not good:
        print("FAILED", text)


def modules(memplan):
    """By its own run, and held against another one with nobody looking on."""
    for setup in (dict(), dict(amp="bf16", optimizer="sgd-momentum", batch=6), dict(mode="infer", seq=32)):
        report = memplan.estimate(Net(), (IDS,), gpu="l4", confirm=True, **setup)
        check(report.certainty == "recorded" and report.confirmed and "event by event" in report.confirmation, f"{setup}: {report.certainty}, {report.confirmation}")
    shape = report.to_dict()["input"]["inputs"][0]["shape"]
    check(shape == [4, 32], f"a sequence of 32: {shape}")
    check("event by event" in " ".join(str(report).split()), "the text does not say it")
    # An export does not show what a function saves, so that PyTorch does otherwise; a recording says it.
    told = memplan.estimate(Net(), (IDS,), gpu="l4", route="export", confirm=True)
    check(told.confirmed is False and "first difference" in told.confirmation, f"an export: {told.confirmation}")
    fallen = memplan.estimate(Net(), (IDS,), gpu="l4", checkpoint=["up"])
    check(fallen.certainty != "modelled" or fallen.warnings[-1].code == "MP062", "checkpoints by the calls")

    class Local(nn.Linear):
        pass

    report = memplan.estimate(Local(8, 8), (torch.zeros(4, 8),), gpu="l4")
    codes = [w.code for w in report.warnings]
    check(codes == ["MP025"] or report.certainty == "recorded", f"a class that another process cannot find: {codes}")


def files(memplan, folder):
    """The file answers as the recording does; another sequence is the graph's."""
    path = memplan.export(Net(), (IDS,), path=os.path.join(folder, "net.onnx"))
    again = memplan.export(Net(), (IDS,), path=os.path.join(folder, "net.pt2"), recorded=True)
    alone = memplan.record(Net(), (IDS,), None, os.path.join(folder, "net.memplan"))
    for setup in (dict(), dict(batch=6, amp="bf16"), dict(mode="inference"), dict(optimizer="sgd"), dict(checkpoint=["up"])):
        by = [memplan.estimate(f, gpu="h100-80gb", **setup).counters for f in (path, again, alone)]
        check(by[0] == by[1] == by[2], f"{setup}: {by}")
    longer = memplan.estimate(path, gpu="h100-80gb", seq=128)
    check([w.code for w in longer.warnings] == ["MP065", "MP016"] or longer.warnings[0].code == "MP065" or "MP065" in [w.code for w in longer.warnings],
          f"another sequence: {longer.warnings}")
    if "onnx" in sys.modules or __import__("importlib.util").util.find_spec("onnx"):
        import onnx

        onnx.save(onnx.load(path, load_external_data=False), path)  # another tool saves it
        check(memplan.estimate(path, gpu="h100-80gb").certainty == "recorded", "saved again by onnx")
        changed = onnx.load(path, load_external_data=False)
        changed.graph.node.append(onnx.helper.make_node("Relu", [changed.graph.output[0].name], ["more"]))
        onnx.save(changed, path)
        warned = memplan.estimate(path, gpu="h100-80gb").warnings
        check(warned and warned[0].code == "MP001" and "changed" in warned[0].message, f"a changed graph: {warned}")


def commands(program, folder):
    """--confirm of a source, of a recording that says its source, and of a setup that changes the program."""
    with open(os.path.join(folder, "factory.py"), "w") as f:
        f.write(FACTORY)
    environment = dict(os.environ, MEMPLAN_TORCH_PYTHON=sys.executable)

    def run(*words):
        done = subprocess.run([program, *words], capture_output=True, text=True, cwd=folder, env=environment)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    code, said = run("factory.py:make", "--gpu", "l4", "--batch", "16", "--confirm", "--no-search")
    check(code == 0 and "confirmed by PyTorch" in said, said[-600:])
    run("record", "factory.py:make", "-o", "factory.memplan", "--gpu", "l4", "--setup", "mode=training")
    code, said = run("factory.memplan", "--gpu", "l4", "--confirm", "--no-search")
    check(code == 0 and "confirmed by PyTorch" in said, said[-600:])
    code, said = run("factory.memplan", "--gpu", "l4", "--confirm", "--checkpoint", "up")
    check(code == 2 and "would change it" in said, said)
    code, said = run("net.memplan", "--gpu", "l4", "--confirm")
    check(code == 2 and "does not say what makes its module" in said, said)


def main():
    program, library = map(os.path.abspath, sys.argv[1:3])
    os.environ.update(MEMPLAN_PROGRAM=program, MEMPLAN_EMULATED_GPU=library)
    import memplan

    with tempfile.TemporaryDirectory() as folder:
        modules(memplan)
        if __import__("importlib.util").util.find_spec("onnxscript"):
            files(memplan, folder)
            commands(program, folder)
    print(f"{sum(checks)} passed, {len(checks) - sum(checks)} failed")
    return 0 if all(checks) else 1


if __name__ == "__main__":
    sys.exit(main())
