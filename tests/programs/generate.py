"""Programs that nobody wrote: of one expression each (lines.py), and random ones of several, without code that does nothing; and whole models (models/, whole/, sealed/)."""
import glob
import os
import random
import re

import lines

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"


def module(name, members, methods, arguments, body):
    init = "".join(f"        self.{m} = {v}\n" for m, v in members.items()) or "        pass\n"
    return f"class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n{init}{''.join(methods)}\n    def forward(self, {arguments}):\n" + "".join(f"        {line}\n" for line in body)


def one(expression, b=None):
    """y = expression between linear layers."""
    members = dict(first="nn.Linear(128, 128)", second="nn.Linear(128, 128)")
    used = set(re.findall(r"self\.(\w+)", expression))
    if used & {"gate", "cat"}:
        used.add("up")
    members.update({m: v for m, v in lines.MEMBERS.items() if m in used})
    methods = [v for m, v in lines.METHODS.items() if m in used]
    members["head"] = "nn.Linear(128, 10)"
    body = ["x = self.first(x)", "h = self.second(F.silu(x))", f"y = {expression.format(a='h', b=b)}"]
    body += ["return self.head(y).mean(dim=1) + self.head(x).mean(dim=1)"] if used - {"first", "training"} else ["x = x + y", "return self.head(x).mean(dim=1)"]
    return HEAD + module("Model", members, methods, "x", body)


def loss(expression):
    members = dict(first="nn.Linear(128, 128)", second="nn.Linear(128, 128)", head="nn.Linear(128, 128)")
    body = ["target = x.mean(dim=1)", "h = self.second(F.silu(self.first(x)))", "y = self.head(h).mean(dim=1)", f"return {expression.format(y='y', t='target')}"]
    return HEAD + module("Model", members, [], "x", body)


def dense(expression, helper):
    """A loss of images, in the line of its own or in a method, of which exporters write no line."""
    members = dict(inner="nn.Linear(3, 16)", outer="nn.Linear(16, 3)")
    if "self.w" in expression:
        members["w"] = "nn.Parameter(torch.ones(3, 1, 1))"
    methods = [f"\n    def criterion(self, h, y):\n        return {expression}\n"] if helper else []
    body = ["h = self.outer(torch.tanh(self.inner(x))).permute(0, 3, 1, 2)", "return self.criterion(h, y)" if helper else f"return {expression}"]
    return HEAD + module("Model", members, methods, "x, y", body) + "\n\ndef inputs(batch):\n    return torch.randn(batch, 48, 48, 3), torch.rand(batch, 3, 48, 48)\n"


def files(folder):
    """(name, source) of the files in a folder beside this one."""
    for path in sorted(glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), folder, "*.py"))):
        with open(path) as f:
            yield os.path.basename(path).removesuffix(".py"), f.read()


def written():
    """{name: source} of models/: its functions, each as the Model and the inputs of a program."""
    found = {}
    for _, source in files("models"):
        for name in re.findall(r"^def (\w+)\(batch\):", source, re.M):
            found[f"model/{name}"] = f"{source}\n\ndef Model():\n    return {name}(1)[0]\n\n\ndef inputs(batch):\n    return {name}(batch)[1]\n"
    return found


def whole():
    """{name: source} of whole/ and sealed/: models of one file each, in every style that their writers have. Those of sealed/ were never looked at."""
    return {f"{folder}/{name}": source for folder in ("whole", "sealed") for name, source in files(folder)}


def without_dead(body, members, result):
    """The lines that the result needs, and their members: an ONNX file has no trace of others."""
    needed, kept = set(re.findall(r"[a-z_]+", result)), []
    for line in reversed(body):
        left, right = re.split(r" \+?= ", line, maxsplit=1)
        names = {n.strip() for n in left.split(",")}
        if not names & needed:
            continue
        if " += " not in line:
            needed -= names
        needed |= set(re.findall(r"\b[a-z]+\b", right))
        kept.append(line)
    used = set(re.findall(r"self\.(\w+)", " ".join(kept)))
    return kept[::-1], {m: v for m, v in members.items() if m in used}


def statements(r, count):
    members, body, have = {}, [], ["x"]

    def member(prefix, value):
        name = f"{prefix}{len(members)}"
        members[name] = value
        return name

    for _ in range(count):
        a, b, kind, name = r.choice(have[-4:]), r.choice(have[-4:]), r.random(), r.choice(["h", "y", "z", "u", "v", "out", "res"])
        if kind < 0.22:
            value = f"self.{member('fc', r.choice(['nn.Linear(128, 128)', 'nn.Linear(128, 128, bias=False)']))}({a})"
        elif kind < 0.30:
            value = f"self.{member('norm', 'nn.LayerNorm(128)')}({a})"
        elif kind < 0.34:
            value = f"self.{member('drop', 'nn.Dropout(0.1)')}({a})"
        elif kind < 0.37:
            value = f"self.{member('conv', 'nn.Conv1d(128, 128, 3, padding=1)')}({a}.transpose(1, 2)).transpose(1, 2)"
        elif kind < 0.40:
            weight = member("w", f"nn.Parameter(torch.{r.choice(['ones', 'zeros', 'randn'])}(128))")
            value = r.choice([f"{a} * self.{weight}", f"{a} * (1 + self.{weight})", f"{a} + self.{weight}"])
        elif kind < 0.43:
            packed = f"self.{member('qkv', 'nn.Linear(128, 384)')}({a})"
            value = attention(r, a, packed, body)
        elif kind < 0.46:
            act = r.choice(["nn.GELU()", "nn.ReLU()", "nn.ReLU(inplace=True)", "nn.SiLU()", "nn.Tanh()", "nn.Sigmoid()"])
            value = f"self.{member('mlp', f'nn.Sequential(nn.Linear(128, 256), {act}, nn.Linear(256, 128))')}({a})"
        elif kind < 0.50 and a != "x":
            body.append(r.choice([f"{a} = {a} + {b}", f"{a} = {a} * 0.9", f"{a} += {b}" if a != b else f"{a} = {a} + 1"]))
            have.append(a)
            continue
        else:
            value = (r.choice(lines.PAIRS) if kind < 0.72 else r.choice(lines.COMMON)).format(a=a, b=b)
        body.append(f"{name} = {value}")
        have.append(name)
    return members, body, have[-1]


def attention(r, a, packed, body):
    way = r.choice(["chunk", "heads", "split"])
    if way == "chunk":
        body.append(f"q, k, w = {packed}.chunk(3, dim=-1)")
        return "F.scaled_dot_product_attention(q.unsqueeze(1), k.unsqueeze(1), w.unsqueeze(1)).squeeze(1)"
    if way == "heads":
        body += [f"q, k, w = {packed}.view({a}.shape[0], 64, 3, 4, 32).permute(2, 0, 3, 1, 4).unbind(0)", "att = (q @ k.transpose(-2, -1)) * 0.176777", "att = att.softmax(dim=-1)"]
        return f"(att @ w).transpose(1, 2).reshape({a}.shape[0], 64, 128)"
    body += [f"q, k, w = torch.split({packed}, 128, dim=2)", f"q, k, w = [p.view({a}.shape[0], 64, 4, 32).transpose(1, 2) for p in (q, k, w)]"]
    return f"F.scaled_dot_product_attention(q, k, w, is_causal=True).transpose(1, 2).contiguous().view({a}.shape[0], 64, 128)"


def several(seed):
    """Two blocks of a random body, and a random body behind them."""
    r = random.Random(seed)
    members, body, last = statements(r, r.randint(3, 8))
    result = r.choice([last, f"x + {last}"])
    body, members = without_dead(body, members, result)
    block = module("Block", members, [], "x", [*body, f"return {result}"])
    members, body, last = statements(r, r.randint(2, 6))
    body, members = without_dead(body, members, last)
    members = dict(first="nn.Linear(128, 128)", layers="nn.ModuleList(Block() for _ in range(2))", **members, head="nn.Linear(128, 10)")
    return HEAD + block + "\n\n" + module("Model", members, [], "x", ["x = self.first(x)", "for layer in self.layers:", "    x = layer(x)", *body, f"return self.head({last}).mean(dim=1)"])


def programs(seeds):
    """{name: source}, of every expression and of as many random ones."""
    found = {f"one/{i:03}": one(e) for i, e in enumerate(lines.COMMON + lines.RARER + lines.MODULES)}
    found.update({f"two/{i:03}": one(e, "x") for i, e in enumerate(lines.PAIRS)})
    found.update({f"loss/{i:03}": loss(e) for i, e in enumerate(lines.LOSSES)})
    found.update({f"dense/{i:03}{'h' * helper}": dense(e, helper) for i, e in enumerate(lines.DENSE) for helper in (False, True)})
    found.update(written())
    found.update(whole())
    found.update({f"several/{s:04}": several(s) for s in range(seeds)})
    return found
