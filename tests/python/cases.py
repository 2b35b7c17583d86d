"""Cases of the Python module, run by run.py in an environment that has the wheel: cases.py WHEEL [FOLDER WITH TORCH]"""
import ast
import html.parser
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import traceback
import zipfile

import memplan

MODELS = os.environ["MEMPLAN_MODELS"]
WHEEL = sys.argv[1]
TORCH = sys.argv[2] if len(sys.argv) > 2 else ""
PROGRAM = os.path.join(os.path.dirname(sys.executable), "memplan")


def file(name):
    return os.path.join(MODELS, name)


def raised(kind, function, *args, **kw):
    try:
        function(*args, **kw)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def test_wheel_has_the_program_and_types():
    names = zipfile.ZipFile(WHEEL).namelist()
    assert "memplan/py.typed" in names
    assert any(n.endswith(".data/scripts/memplan") for n in names)
    assert not [n for n in names if not n.startswith(("memplan/", "memplan-"))], names
    assert "-py3-none-" in WHEEL  # for every Python 3
    assert importlib.metadata.version("memplan") in subprocess.run([PROGRAM, "--version"], capture_output=True, text=True).stdout


def test_every_function_is_typed():
    folder = os.path.dirname(memplan.__file__)
    for name in os.listdir(folder):
        if name.endswith(".py"):
            for node in ast.walk(ast.parse(open(os.path.join(folder, name)).read())):
                if isinstance(node, ast.FunctionDef):
                    assert node.returns is not None, f"{name}: {node.name}"
                    assert all(a.annotation for a in node.args.args if a.arg != "self"), f"{name}: {node.name}"


def test_same_json_as_the_command_line():
    path = file("gpt2.onnx")
    done = subprocess.run([PROGRAM, path, "--gpu", "80GB", "--batch", "2", "--seq", "64", "--amp", "bf16", "--clip", "--freeze", "*wte*", "--freeze", "*wpe*", "--format", "json"],
                          capture_output=True)
    report = memplan.estimate(path, gpu="80GB", batch=2, seq=64, amp="bf16", clip=True, freeze=["*wte*", "*wpe*"])
    assert report.to_dict() == json.loads(done.stdout)
    assert json.loads(report.to_json()) == report.to_dict()


def test_dimensions_by_name():
    by_name = memplan.estimate(file("gpt2.onnx"), gpu="80GB", dim={"batch": 2, "seq": 64})
    assert by_name.peak == memplan.estimate(file("gpt2.onnx"), gpu="80GB", batch=2, seq=64).peak


def test_report_reads_the_json():
    report = memplan.estimate(file("mlp.onnx"), gpu="l4", batch=4)
    whole = report.to_dict()
    assert report.verdict == "fits" and report.fits is True and report.exit_code == 0
    assert report.peak == whole["summary"]["peak_bytes"] == report.counters.process == sum(p.bytes for p in report.parts)
    assert report.limit - report.peak == report.headroom
    assert report.range[0] <= report.peak <= report.range[1]
    assert len(report.steps) == len(whole["steps"]) and report.steps[-1].peak.requested == whole["steps"][-1]["peak"]["requested_bytes"]
    assert sum(t.block_bytes for t in report.tensors) <= report.counters.allocated
    assert report.device == "l4" and report.parameters == whole["input"]["parameters"] > 0
    whole["summary"]["peak_bytes"] = 0
    assert report.peak > 0  # to_dict() is a copy


def test_no_verdict_without_gpu():
    report = memplan.estimate(file("mlp.onnx"))
    assert (report.verdict, report.fits, report.limit, report.headroom, report.why) == (None,) * 5


def test_text_is_the_command_lines():
    report = memplan.estimate(file("mlp.onnx"), gpu="l4", batch=4)
    done = subprocess.run([PROGRAM, file("mlp.onnx"), "--gpu", "l4", "--batch", "4", "--color", "never", "--width", "100"], capture_output=True, text=True)
    assert str(report) == done.stdout and "mlp" in done.stdout
    assert "verdict=fits" in repr(report)


def test_html_is_the_command_lines():
    report = memplan.estimate(file("mlp.onnx"), gpu="l4", batch=4)
    done = subprocess.run([PROGRAM, file("mlp.onnx"), "--gpu", "l4", "--batch", "4", "--format", "html"], capture_output=True, text=True)
    page = report.to_html()
    assert page == done.stdout and page.startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=[\"']?(https?:)?//", page)  # self-contained


class Structure(html.parser.HTMLParser):
    """Tags, attributes and texts; fails on tags that do not close in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], set(), set(), ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_card_of_notebooks():
    report = memplan.estimate(file("gpt2.onnx"), gpu="24GB", batch=2, seq=64)
    card = Structure(report._repr_html_())
    assert card.tags == {"div", "span", "b"} and card.attributes == {"style"}  # nothing that runs or loads
    assert "gpt2.onnx" in card.text and "FITS" in card.text and report.why in card.text
    assert f"{report.peak / 2**30:.2f} GiB of {report.limit / 2**30:.2f} GiB" in card.text
    largest = max(report.parts, key=lambda p: p.bytes)
    assert largest.category in card.text
    assert len(report._repr_html_()) < 4000  # a card, not the page
    assert "of" not in Structure(memplan.estimate(file("mlp.onnx"))._repr_html_()).text.split("at the peak")[0]  # no limit, no verdict


def test_names_in_html_are_escaped():
    name = "<img src=x onerror=alert(1)>&.onnx"
    shutil.copy(file("mlp.onnx"), name)
    report = memplan.estimate(name, gpu="l4")
    card = Structure(report._repr_html_())
    assert "img" not in card.tags and name in card.text
    assert "<img" not in report.to_html()


def test_page_needs_the_file():
    shutil.copy(file("mlp.onnx"), "gone.onnx")
    report = memplan.estimate("gone.onnx", gpu="l4")
    os.remove("gone.onnx")
    assert "gone.onnx" in report._repr_html_()
    assert raised(memplan.Error, report.to_html).code == 3


def test_torchscript_says_what_it_needs():
    """The wheel has no memplan-torch, which needs LibTorch: one line says so."""
    with zipfile.ZipFile("script.pt", "w") as z:
        for name, data in (("data.pkl", b"\x80\x02}q\x00."), ("code/__torch__.py", b"class M(Module):\n  pass\n"), ("constants.pkl", b"\x80\x02)."), ("version", b"3\n")):
            z.writestr("script/" + name, data)
    error = raised(memplan.Error, memplan.estimate, "script.pt", gpu="l4")
    assert "memplan-torch" in str(error) and "\n" not in error.message, error


def test_assert_fits():
    assert memplan.assert_fits(file("mlp.onnx"), gpu="l4", batch=4).fits
    error = raised(memplan.DoesNotFit, memplan.assert_fits, file("gpt2.onnx"), gpu="l4", batch=64, seq=1024)
    assert error.report.verdict == "no-fit" and isinstance(error, AssertionError)
    assert error.report.why in str(error) and "l4" in str(error)
    # The policy of the command line: tight fails only on request.
    raised(memplan.DoesNotFit, memplan.assert_fits, file("mlp.onnx"), gpu="l4", margin="100%", fail_on=["tight"])


def test_failures_say_what_to_do():
    error = raised(memplan.UsageError, memplan.estimate, file("mlp.onnx"), gpuu="l4")
    assert "gpu" in str(error) and error.code == 2 and isinstance(error, ValueError)
    assert raised(memplan.UsageError, memplan.estimate, file("mlp.onnx"), gpu="nothing").hint
    assert raised(memplan.InputError, memplan.estimate, "nowhere.onnx").code == 3
    assert raised(memplan.InputError, memplan.estimate, "--version").code == 3  # a path is never a flag
    # Hints are for who calls from Python.
    error = raised(memplan.UsageError, memplan.estimate, file("mlp.onnx"), gpus=2, no_reshard=True)
    assert error.where == "no_reshard=True" and error.hint == "add fsdp=True"
    assert raised(memplan.UsageError, memplan.estimate, file("mlp.onnx"), sp=True).hint == "add tp=N with N of at least 2"
    raised(TypeError, memplan.estimate, file("mlp.onnx"), format="json")
    raised(TypeError, memplan.estimate, file("mlp.onnx"), (1, 2))
    raised(TypeError, memplan.estimate, 42)


def test_torch_is_not_imported():
    code = f"import sys, memplan; memplan.estimate({file('mlp.onnx')!r}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# --- with PyTorch ----------------------------------------------------------------------------------------------------

def small():
    import torch
    from torch import nn
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(256, 8)), torch.randn(16, 64)


def torch_test_module_is_its_file():
    import torch
    module, x = small()
    torch.export.save(torch.export.export(module, (x,)), "Sequential.pt2")
    by_file = memplan.estimate("Sequential.pt2", gpu="l4").to_dict()
    by_module = memplan.estimate(module, (x,), gpu="l4").to_dict()
    by_file["input"]["file_bytes"] = by_module["input"]["file_bytes"] = 0  # one has weights
    assert by_file == by_module


def torch_test_weights_are_never_made():
    import resource

    import torch
    from torch import nn
    with torch.device("meta"):
        huge = nn.Sequential(nn.Linear(65536, 65536), nn.Linear(65536, 65536))  # 32 GiB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = memplan.estimate(huge, (torch.empty(4, 65536, device="meta"),), gpu="80GB", mode="inference")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10  # KiB
    assert report.counters.requested > 32 << 30 and report.parameters == 2 * (65536 * 65536 + 65536)
    # The module is left as it was.
    assert all(p.is_meta for p in huge.parameters())


def torch_test_keywords_ties_buffers():
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.norm = nn.Embedding(100, 32), nn.BatchNorm1d(32)
            self.rnn, self.head = nn.LSTM(32, 32, 2, batch_first=True), nn.Linear(32, 100, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens, *, scale=None):
            x = self.norm(self.rnn(self.embedding(tokens))[0].transpose(1, 2)).transpose(1, 2)
            return self.head(x if scale is None else x * scale)

    model = Model()
    report = memplan.estimate(model, (torch.zeros(4, 16, dtype=torch.long),), {"scale": torch.ones(1)}, gpu="l4", optimizer="sgd")
    assert report.parameters == sum(p.numel() for p in model.parameters())  # tied once
    assert not report.unmodelled and report.fits


def torch_test_dynamic_batch():
    import torch
    module, x = small()
    report = memplan.estimate(module, (x,), gpu="l4", batch=32, dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert report.to_dict()["input"]["inputs"][0]["shape"] == [32, 64]
    assert report.peak == memplan.estimate(module, (x.repeat(2, 1),), gpu="l4").peak


def torch_test_assert_fits_with_a_module():
    module, x = small()
    assert memplan.assert_fits(module, (x,), gpu="l4").fits
    raised(memplan.DoesNotFit, memplan.assert_fits, module, (x,), gpu="100MiB")
    report = memplan.estimate(module, x, gpu="l4")
    assert str(report).count("Sequential.pt2")
    assert "Sequential.pt2" in report._repr_html_() and "Sequential.pt2" in report.to_html()


def torch_test_not_exportable():
    import torch

    class Decides(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    error = raised(memplan.InputError, memplan.estimate, Decides(), (torch.randn(3),), gpu="l4")
    assert "Decides" in str(error) and error.hint


def main():
    names = [n for n in globals() if n.startswith("test_")]
    if TORCH:
        names += [n for n in globals() if n.startswith("torch_test_")]
    else:
        print("PyTorch is not there: the cases with modules are left out")
    failed = 0
    for name in names:
        if name.startswith("torch_") and TORCH not in sys.path:
            sys.path.append(TORCH)
        try:
            globals()[name]()
        except Exception:
            failed += 1
            print(f"FAILED {name}")
            traceback.print_exc(file=sys.stdout)
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
