"""An installed cuDNN is asked about convolutions that no table has: which one, what it says, and what happens when it says nothing."""
import os

import build_tree
from onnx import helper
from support import BUILD, check, equal, memplan, onnx_bytes, scratch, tensor, weight, write

MIB = 1 << 20
ANSWERS = "echo {version}; while read -r line; do echo $line >>{log}; echo {bytes}; done"


def one_convolution():
    node = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3])
    return write("one-convolution.onnx", onnx_bytes([node], [tensor("x", [2, 3, 71, 67])], [tensor("y", [2, 7, 69, 65])], [weight("w", [7, 3, 3, 3])]))


def installed(name, version, script):
    """A virtual environment whose Python says what `script` says, with the files that PyTorch's cuDNN has."""
    folder = scratch(name)
    packages = os.path.join(folder, "lib", "python3.11", "site-packages")
    for made in ("bin", os.path.join(packages, f"nvidia_cudnn_cu13-{version}.56.dist-info"), os.path.join(packages, "nvidia", "cudnn", "lib")):
        os.makedirs(os.path.join(folder, made), exist_ok=True)
    open(os.path.join(packages, "nvidia", "cudnn", "lib", "libcudnn.so.9"), "w").close()
    python = os.path.join(folder, "bin", "python3")
    with open(python, "w") as f:
        f.write("#!/bin/sh\n" + script.format(version=version, log=os.path.join(folder, "asked"), bytes=MIB) + "\n")
    os.chmod(python, 0o755)
    return folder


def ask(folder, *words, cache="cache", cudnn="auto", code=0):
    # The preloaded library only has to be there: /bin/sh runs without it.
    environment = {"VIRTUAL_ENV": folder, "MEMPLAN_CUDNN": cudnn, "MEMPLAN_PYTHON": "", "XDG_CACHE_HOME": scratch(cache), "MEMPLAN_EMULATED_GPU": write("libemulated_gpu.so", b"")}
    answer = memplan(one_convolution(), "--mode", "inference", "--no-search", "--torch", "2.11", "--format", "json", *words, env=environment)
    equal(answer.code, code, answer.out + answer.err)
    return answer


def asked(folder):
    path = os.path.join(folder, "asked")
    return open(path).read().splitlines() if os.path.exists(path) else []


def workspace(answer):
    return sum(p["bytes"] for p in answer.json()["breakdown"] if p["category"] == "workspaces")


def test_the_library_of_the_users_pytorch_is_asked_once():
    folder = installed("asked-once", "9.19.0", ANSWERS)
    answer = ask(folder, cache="once")
    equal(workspace(answer), MIB)
    # forward pass, float32, NCHW, PyTorch, two dimensions, N C H W K R S, padding, stride, dilation, groups
    equal(asked(folder), ["0 0 0 0 2 2 3 71 67 7 3 3 0 0 1 1 1 1 1"])
    check(any("cuDNN 9.19 that is installed here was asked" in text for text in answer.json()["assumptions"]), answer.out)
    equal(answer.json()["unmodelled"], [])
    equal(workspace(ask(folder, cache="once")), MIB)
    equal(len(asked(folder)), 1)  # the cache answered


def test_another_version_is_not_asked():
    folder = installed("another", "9.10.2", ANSWERS)
    answer = ask(folder, cache="another")
    equal(asked(folder), [])
    check(answer.json()["unmodelled"], answer.out)
    equal(workspace(ask(folder, "--torch", "2.8", cache="another")), MIB)


def test_a_named_library():
    folder = installed("named", "9.19.0", ANSWERS)
    library = os.path.join(folder, "lib", "python3.11", "site-packages", "nvidia", "cudnn", "lib")
    equal(workspace(ask(folder, cache="named", cudnn=library)), MIB)
    other = ask(folder, "--torch", "2.15", cache="named", cudnn=library + "/libcudnn.so.9")
    check("is cuDNN 9.19.0, and this version of PyTorch has 9.26" in other.err, other.err)
    check("there is no cuDNN" in ask(folder, cudnn="/nonexistent", code=2).out, "a folder that is not there")


def test_a_library_that_says_nothing_of_use():
    tables = workspace(ask(installed("none", "9.19.0", ANSWERS), cudnn="none"))
    for name, script in (("crash", "exit 3"), ("refusal", "echo 'no: broken'; read -r line"), ("garbage", "echo {version}; while read -r line; do echo lots; done"),
                         ("silent", "echo {version}; read -r line"), ("noise", "yes x | tr -d '\\n' | head -c 300000")):
        answer = ask(installed(name, "9.19.0", script), cache=name)
        equal(workspace(answer), tables, name)
        check("libcudnn.so.9 could not be asked" in answer.err or "cuDNN stopped answering" in answer.err, f"{name}: {answer.err}")
        equal(answer.err.count("\n"), 2, answer.err)  # one line, and the verdict
        check(not os.path.exists(os.path.join(scratch(name), "memplan", "cudnn")), f"{name}: an answer was kept")


def test_a_damaged_cache():
    folder = installed("damaged", "9.19.0", ANSWERS)
    ask(folder, cache="damaged-cache")
    (path,) = [os.path.join(where, f) for where, _, files in os.walk(scratch("damaged-cache")) for f in files]
    with open(path, "r+") as f:
        first = f.readline()
        f.seek(0)
        f.write(first + "0 0 0 0 2 2 3 71 67 7 3 3 0 0 1 1 1 1 1=9x\n=\n\n" + "x" * 1000)
        f.truncate()
    equal(workspace(ask(folder, cache="damaged-cache")), MIB)
    equal(len(asked(folder)), 2)


def test_gates_do_not_depend_on_the_machine():
    folder = installed("gate", "9.19.0", ANSWERS)
    one_convolution()
    config = write("cudnn.toml", b'[[target]]\nname = "one"\nmodel = "one-convolution.onnx"\ngpu = "t4"\nmode = "inference"\n')
    environment = {"VIRTUAL_ENV": folder, "MEMPLAN_CUDNN": "auto", "MEMPLAN_PYTHON": "", "XDG_CACHE_HOME": scratch("gate-cache"), "MEMPLAN_EMULATED_GPU": write("libemulated_gpu.so", b"")}
    answer = memplan("check", "--config", config, env=environment)
    check(answer.code in (0, 1), answer.err)
    equal(asked(folder), [])


def convolutions():
    """Of one to three dimensions, transposed, grouped, dilated, at sizes that no table has."""
    kinds = {"line": ([5, 24, 301], [40, 24, 5], {"strides": [2], "pads": [2, 2]}), "plane": ([5, 24, 53, 47], [40, 24, 3, 3], {"pads": [1] * 4}),
             "groups": ([5, 24, 53, 47], [48, 6, 3, 3], {"group": 4, "dilations": [2, 2]}), "space": ([5, 8, 9, 21, 17], [16, 8, 3, 3, 3], {"pads": [1] * 6}),
             "back": ([5, 24, 29, 31], [24, 16, 4, 4], {"strides": [2, 2]})}
    nodes, inputs, weights, sums = [], [], [], []
    for name, (x, w, attributes) in kinds.items():
        inputs.append(tensor("x_" + name, x))
        weights.append(weight("w_" + name, w))
        op = "ConvTranspose" if name == "back" else "Conv"
        nodes.append(helper.make_node(op, ["x_" + name, "w_" + name], ["y_" + name], kernel_shape=w[2:], **attributes))
        nodes.append(helper.make_node("ReduceMean", ["y_" + name], ["m_" + name], keepdims=0))
        sums.append("m_" + name)
    for i, name in enumerate(sums[1:]):
        nodes.append(helper.make_node("Add", [sums[0] if i == 0 else f"s_{i}", name], [f"s_{i + 1}"]))
    return write("convolutions.onnx", onnx_bytes(nodes, inputs, [tensor(f"s_{len(sums) - 1}", [])], weights))


def test_what_cudnn_says_is_what_pytorch_takes():
    found = build_tree.emulated(BUILD)
    if not found or not os.path.exists(os.path.join(BUILD, "memplan-torch")):
        return
    python, _ = found
    for card in ("rtx3060-12gb", "h100-80gb"):
        answer = memplan("validate", convolutions(), "--torch", "2.11", "--on", "emulated:" + card, "--format", "json", timeout=300,
                         env={"MEMPLAN_CUDNN": "auto", "MEMPLAN_PYTHON": python, "XDG_CACHE_HOME": scratch("live-cache")})
        equal(answer.code, 0, answer.out + answer.err)
        for counter, pair in answer.json()["peak"].items():
            equal(pair["predicted_bytes"], pair["measured_bytes"], f"{counter} on {card}")
        check(os.listdir(os.path.join(scratch("live-cache"), "memplan", "cudnn")), "cuDNN was asked")
