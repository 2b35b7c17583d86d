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


def test_card_has_the_colours_of_the_page():
    from memplan import _card

    with open(os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "cli", "report", "html", "style.css")) as f:
        light = dict(re.findall(r"--k-([a-z]+): (#[0-9a-f]{6})", f.read().split("}")[0]))
    assert {kind.split()[0]: colour for kind, colour in _card.PART_COLORS.items()} == {k: light[k] for k in light if k != "other"}
    assert _card.OTHER_COLOR == light["other"]


def test_card_shows_where_the_card_ends():
    small = memplan.estimate(file("gpt2.onnx"), gpu="t4", batch=16, seq=1024)
    assert small.verdict == "no-fit"
    card = small._repr_html_()
    assert "DOES NOT FIT" in card and f"left:{100 * small.limit / small.peak:.2f}%" in card
    assert "left:" not in memplan.estimate(file("gpt2.onnx"), gpu="24GB", batch=2, seq=64)._repr_html_()


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
    assert "did you mean gpu=?" in str(error) and "--" not in str(error) and error.code == 2 and isinstance(error, ValueError)
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


def test_flags_and_keywords():
    from memplan._words import in_python, keywords, words
    given = dict(amp="bf16", clip=True, accumulate=4, checkpoint=["a.*", "b"], dim={"s0": 4, "s1": 8})
    assert keywords(" ".join(words(given))) == given
    variables = dict(env={"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TORCH_CUBLAS_WORKSPACE_CACHE": "1"})
    assert keywords(" ".join(words(variables))) == variables
    assert in_python("give their sizes, for example: memplan m.pt2 --seq 512 --dim s3=64") == "give their sizes, for example: seq=512, dim={'s3': 64}"
    assert in_python("memplan observe -- python train.py") == "memplan observe -- python train.py"


def test_size():
    found = memplan.size(file("gpt2.onnx"), gpu="24GB", seq=64)
    fits = memplan.estimate(file("gpt2.onnx"), gpu="24GB", seq=64, batch=found.largest_batch.size)
    assert fits.fits and fits.peak == found.largest_batch.peak and not found.largest_batch.at_least
    assert not memplan.estimate(file("gpt2.onnx"), gpu="24GB", seq=64, batch=found.largest_batch.size + 1).verdict == "fits"
    assert found.cards and all(c.peak <= c.usable for c in found.cards) and found.peak == found.to_dict()["peak_bytes"]


def test_sweep():
    found = memplan.sweep(file("mlp.onnx"), gpu=["l4", "a10"], batch=[1, 4])
    assert [r.setup for r in found.rows] == [{"gpu": g, "batch": b} for g in ("l4", "a10") for b in ("1", "4")]
    assert found.rows[1].peak == memplan.estimate(file("mlp.onnx"), gpu="l4", batch=4).peak and found.rows[1].error is None
    assert "l4" in str(found)


def test_suggest():
    found = memplan.suggest(file("gpt2.onnx"), gpu="24GB", batch=64, seq=512, framework="hf")
    assert found.present.verdict == "no-fit" and found.fitting and "TrainingArguments" in found.settings
    best = found.fitting[0]
    assert best.peak == memplan.estimate(file("gpt2.onnx"), **{**dict(gpu="24GB", batch=64, seq=512), **best.setup}).peak


def test_check():
    for name in ("mlp.onnx", "gpt2.onnx"):
        shutil.copy(file(name), name)
    with open("memplan.toml", "w") as f:
        f.write("[[target]]\nname = 'small'\nmodel = 'mlp.onnx'\ngpu = 'l4'\n[[target]]\nname = 'large'\nmodel = 'gpt2.onnx'\ngpu = 'l4'\nbatch = 512\n")
    found = memplan.check()
    assert [(t.name, t.status) for t in found.targets] == [("small", "passed"), ("large", "failed")] and not found.passed and found.exit_code == 1
    assert found.targets[1].messages and memplan.check(["small"], config="memplan.toml").passed
    os.remove("memplan.toml")


def test_sources_that_are_none():
    for source, said in (("nowhere", "no such model"), ("x.py:f", "no such file"), (file("mlp.onnx"), "no source of a model")):
        done = subprocess.run([sys.executable, "-m", "memplan", "export", source], capture_output=True, text=True)
        assert done.returncode == 3 and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    done = subprocess.run([sys.executable, "-m", "memplan", file("mlp.onnx"), "-q"], capture_output=True, text=True)
    assert done.returncode == 0 and "MiB" in done.stdout  # everything else is the program


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
    by_module = memplan.estimate(module, (x,), gpu="l4", route="export").to_dict()
    by_file["input"]["file_bytes"] = by_module["input"]["file_bytes"] = 0  # one has weights
    assert by_file == by_module


def torch_test_the_route_of_a_module():
    """Without the emulated GPU a module is exported, and the report says so; what only a device can do is refused."""
    module, x = small()
    before = os.environ.get("MEMPLAN_EMULATED_GPU")
    os.environ["MEMPLAN_EMULATED_GPU"] = "/nowhere/lib.so"
    try:
        raised(memplan.UsageError, memplan.estimate, module, (x,), gpu="l4")  # named, and not there
        assert not memplan.estimate(module, (x,), gpu="l4", route="export").warnings
    finally:
        os.environ.pop("MEMPLAN_EMULATED_GPU")
        if before:
            os.environ["MEMPLAN_EMULATED_GPU"] = before
    raised(memplan.UsageError, memplan.estimate, module, (x,), gpu="l4", route="guess")
    graph = memplan.estimate(module, (x,), gpu="l4", torch="2.13")  # asked of a graph
    assert [w.code for w in graph.warnings] == ["MP025"] and "torch=" in graph.warnings[0].message
    raised(memplan.InputError, memplan.estimate, module, (x,), gpu="l4", torch="2.13", route="record")
    raised(memplan.InputError, memplan.estimate, module, (x,), gpu="l4", checkpoint=["0"], route="export", confirm=True)


def torch_test_onnx_export():
    """A file without weights whose estimate is that of the archive."""
    import importlib.util

    module, x = small()
    if importlib.util.find_spec("onnxscript") is None:
        raised(memplan.InputError, memplan.export, module, (x,), path="small.onnx")
        return
    memplan.export(module, (x,), path="small.onnx", recorded=False)
    memplan.export(module, (x,), path="small.pt2")
    assert os.path.getsize("small.onnx") < 100_000
    for setup in (dict(), dict(batch=24, amp="bf16")):
        onnx, archive = (memplan.estimate(f, gpu="l4", **setup) for f in ("small.onnx", "small.pt2"))
        assert onnx.counters == archive.counters, (onnx.counters, archive.counters)


def torch_test_the_imported_version():
    """The archive of an export says which PyTorch wrote it; torch= counts more."""
    import torch
    module, x = small()
    own = torch.__version__

    def version(**setup):
        found = memplan.estimate(module, (x,), gpu="l4", **setup).to_dict()["setup"]["torch"]
        return found["version"], found["why"]

    assert version() == (".".join(own.split(".")[:2]), "which wrote the file"), version()
    try:
        for text in ("2.8.0+cu128", "2.11.0+cu130", "2.15.1"):
            torch.__version__ = type(own)(text)
            assert version() == (text.rsplit(".", 1)[0], "which wrote the file"), version()
            assert version(torch="2.13") == ("2.13", "as asked for"), version(torch="2.13")
    finally:
        torch.__version__ = own


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
    assert "Decides" in str(error) and error.hint.count("memplan observe") == 1 and "record" in error.hint
    line = next(i for i, text in enumerate(open(__file__), 1) if "return x if x.sum() > 0 else -x" in text)
    assert f"cases.py:{line}, in forward" in error.where and "\n" not in str(error), error.where


def torch_test_nothing_of_torch_on_stderr():
    code = """
import torch, memplan
class Decides(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x
try:
    memplan.export(Decides(), (torch.randn(3),), path="decides.pt2")
except memplan.InputError as error:
    print("said", error.code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": TORCH})
    assert (done.stdout, done.stderr) == ("said 3\n", ""), done


def torch_test_export():
    """Batch and sequence are open, with the sizes of the arguments; labels go with them; no weight is in the file."""
    import torch
    from torch import nn

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(100, 32), nn.Linear(32, 5)

        def forward(self, ids, labels):
            return nn.functional.cross_entropy(self.head(self.embedding(ids)).flatten(0, 1), labels.flatten())

    def arguments(batch, length):
        return tuple(torch.zeros(batch, length, dtype=torch.long, device="meta") for _ in range(2))

    for batch in (1, 4):  # PyTorch fixes dimensions of size 1
        path = memplan.export(Tagger(), arguments(batch, 16), path="tagger.pt2")
        sizes = [m.file_size for m in zipfile.ZipFile(path).infolist() if "/weights/weight" in m.filename]
        assert sizes and not any(sizes)
        shapes = lambda **kw: [i["shape"] for i in memplan.estimate(path, **kw).to_dict()["input"]["inputs"]]  # noqa: E731
        assert shapes() == [[batch, 16]] * 2
        assert shapes(batch=6) == [[6, 16]] * 2 and shapes(batch=6, seq=32) == [[6, 32]] * 2
    assert memplan.estimate(path, batch=6, seq=32).peak == memplan.estimate(Tagger(), arguments(6, 32)).peak
    assert memplan.estimate(Tagger(), arguments(4, 16), batch=6, seq=32).peak == memplan.estimate(path, batch=6, seq=32).peak
    raised(memplan.UsageError, memplan.export, Tagger(), arguments(2, 16), path="tagger.json")
    raised(TypeError, memplan.export, "tagger.pt2")


def torch_test_sizes_of_the_arguments():
    import torch
    module, x = small()
    report = memplan.estimate(module, (x,), gpu="l4", dynamic_shapes=({0: torch.export.Dim.AUTO},))
    assert report.to_dict()["input"]["inputs"][0]["shape"] == [16, 64] and not report.warnings
    assert memplan.size(module, (x,), gpu="l4").largest_batch.size > 16  # a search opens the batch by itself


def torch_test_own_checkpoints():
    """Every way to call torch.utils.checkpoint; what covers whole modules is taken over."""
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down, self.inside = nn.Linear(64, 256), nn.Linear(256, 64), False

        def inner(self, x):
            return x + self.down(torch.nn.functional.gelu(self.up(x)))

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False) if self.inside else self.inner(x)

    class Model(nn.Module):
        def __init__(self, how):
            super().__init__()
            self.blocks, self.how = nn.ModuleList(Block() for _ in range(3)), how
            for block in self.blocks:
                block.inside = how == "inside"

        def forward(self, x):
            for i, block in enumerate(self.blocks):
                if self.how in ("plain", "inside"):
                    x = block(x)
                elif self.how == "pairs":
                    x = checkpoint(lambda x: self.blocks[0](self.blocks[1](x)), x, use_reentrant=False)
                else:
                    x = checkpoint(block, x, use_reentrant=self.how == "reentrant")
            return x

    x = torch.randn(512, 64)
    def estimate(how, **setup):
        return memplan.estimate(Model(how), (x,), gpu="l4", route="export", **setup)

    plain, chosen = estimate("plain"), estimate("plain", checkpoint=["blocks.*"])
    assert chosen.counters.requested < plain.counters.requested and not plain.warnings
    for how in ("non-reentrant", "reentrant", "inside"):
        report = estimate(how)
        assert [w.code for w in report.warnings] == ["MP021"] and "blocks.*" in report.warnings[0].message, how
        assert report.counters == chosen.counters
        assert estimate(how, mode="inference").warnings == []
    report = estimate("pairs")
    assert [w.code for w in report.warnings] == ["MP021"] and "record()" in report.warnings[0].message


def torch_test_cache_of_keys_and_values():
    """A configuration with use_cache, whose model returns what torch.export does not know."""
    import warnings

    import torch
    from torch import nn

    class Config:
        use_cache = True

        def __init__(self):
            self.use_cache = True

    class Cache:
        pass

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.config, self.inner = Config(), nn.Linear(8, 8)

        def forward(self, x):
            return {"logits": self.inner(x), **({"cache": Cache()} if self.config.use_cache else {})}

    model = Model()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        memplan.export(model, (torch.randn(4, 8),), path="cached.pt2")
    assert [w.category for w in caught] == [memplan.ExportWarning] and "MP020" in str(caught[0].message)
    assert model.config.use_cache  # of the user's own module
    assert [w.code for w in memplan.estimate("cached.pt2").warnings] == ["MP020"]


def torch_test_command_line():
    with open("factory.py", "w") as f:
        f.write("import torch\ndef make():\n    return torch.nn.Linear(8, 8), (torch.zeros(4, 8),)\ndef bad():\n    raise OSError('gone')\ndef none():\n    return 3\n"
                "if __name__ == '__main__':\n    raise SystemExit('run as a script')\n")
    def run(*words):
        done = subprocess.run([sys.executable, "-m", "memplan", "export", *words], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": TORCH, "HF_HOME": os.getcwd()})
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr
    code, said = run("factory.py:make", "-o", "made.pt2")
    assert code == 0 and "made.pt2" in said and memplan.estimate("made.pt2", batch=3).to_dict()["input"]["inputs"][0]["shape"] == [3, 8]
    code, said = run("factory.py:bad")
    assert code == 3 and "factory.py:5, in bad" in said and "gone" in said
    assert run("factory.py:none")[0] == 3 and run("factory.py:missing")[0] == 2 and run("factory.py")[0] == 2
    try:
        import transformers
    except ImportError:
        return
    with open("config.json", "w") as f:
        json.dump(dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], vocab_size=1000, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, head_dim=16, dtype="float32"), f)
    code, said = run("config.json", "--batch", "2", "--seq", "32", "-o", "qwen.pt2", "--gradient-checkpointing")
    assert code == 0 and "MP020" in said and "--checkpoint 'model.layers.*'" in said, said
    report = memplan.estimate("qwen.pt2", batch=3)
    assert [(i["name"], i["shape"]) for i in report.to_dict()["input"]["inputs"]] == [("input_ids", [3, 32]), ("labels", [3, 32])]
    # Two layers of 64·(4·16 + 2·2·16) + 4·16·64 + 3·64·128 + 2·64 + 2·16 weights, the embedding, the head and the last norm.
    assert report.parameters == 2 * (64 * (64 + 64) + 64 * 64 + 3 * 64 * 128 + 2 * 64 + 2 * 16) + 2 * 1000 * 64 + 64
    # The program has this Python export it, and keeps the file for the next question.
    answer = dict(os.environ, MEMPLAN_TORCH_PYTHON=sys.executable, PYTHONPATH=TORCH, XDG_CACHE_HOME=os.getcwd(), HF_HOME=os.getcwd())
    program = [memplan._binary.program(), "config.json", "--seq", "32", "--batch", "3", "--no-search", "--format", "json"]
    first, again, own = (json.loads(subprocess.run([*program, *more], capture_output=True, text=True, env=answer).stdout)
                         for more in ([], [], ["--gradient-checkpointing"]))
    direct = memplan.estimate("qwen.pt2", batch=3, seq=32).to_dict()
    assert own["counters"] == direct["counters"] and first["counters"] == again["counters"], (own["counters"], direct["counters"])
    assert own["setup"]["checkpoint"] == ["model.layers.*"] and not first["setup"]["checkpoint"]
    assert [(d["name"], d["size"]) for d in first["setup"]["dims"]] == [("batch", 3), ("seq", 32)]
    assert {"MP021", "MP023"} <= {w["code"] for w in own["warnings"]}
    assert len(os.listdir("memplan/exports")) == 2
    code, said = run("some/model-of-nobody")
    assert code == 3 and "nothing is downloaded" in said
    with open("config.json", "w") as f:
        json.dump(dict(model_type="qwen3", architectures=["Qwen3ForCausalLLM"]), f)
    code, said = run("config.json")
    assert code == 3 and "Qwen3ForCausalLM" in said
    with open("config.json", "w") as f:
        json.dump(dict(model_type="of-nobody"), f)
    assert run("config.json")[0] == 3


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
