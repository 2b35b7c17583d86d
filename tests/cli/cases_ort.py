"""ONNX Runtime as a runtime: validate against a recorded session, and the file that it places nodes by."""
import csv
import json
import os

from onnx import TensorProto, helper

from support import ROOT, check, equal, memplan, model, scratch, write

MLP = "data/models/ort/mlp.saved.onnx.gz"
# What sessions of onnxruntime-gpu 1.31.1 asked the emulated H100 for: that file, batch 64, all options at their defaults.
with open(os.path.join(ROOT, "data", "measured", "ort", "mlp.saved.sessions.json")) as f:
    SESSIONS = json.load(f)
# The nodes' names in the file that session.collect_node_memory_stats_to_file of onnxruntime-gpu 1.31.1 wrote for it.
NAMES = ["node_linear_14526335772442067360", "node_relu_3991623451813916177", "node_linear_1_9595419117210197228", "node_relu_1_18273427550543751664",
         "node_linear_2_12961382638621191630"]


def stub(name, requests, arena):
    """A Python with onnxruntime-gpu that answers as it is told."""
    folder = scratch(name)
    os.makedirs(os.path.join(folder, "bin"))
    os.makedirs(os.path.join(folder, "lib", "python3.11", "site-packages", "onnxruntime_gpu-1.31.1.dist-info"))
    for which, reply in (("requests", requests), ("arena", arena)):
        with open(os.path.join(folder, which), "w") as f:
            f.write(reply if isinstance(reply, str) else json.dumps(reply))
    python = os.path.join(folder, "bin", "python")
    with open(python, "w") as f:
        f.write(f"#!/bin/sh\ncase \"$(cat)\" in *'\"arena\":true'*) cat {folder}/arena;; *) cat {folder}/requests;; esac\n")
    os.chmod(python, 0o755)
    return python


def validate(python, *words, json_report=True):
    more = ("--format", "json") if json_report else ()
    return memplan("validate", MLP, "--batch", "64", "--runtime", "ort", "--on", "emulated:h100-80gb", "--onnxruntime", python, *words, *more,
                   env={"MEMPLAN_EMULATED_GPU": write("libemulated.so", b"")})


def test_a_session_is_compared_event_by_event():
    import jsonschema

    python = stub("ort", SESSIONS["requests"], SESSIONS["arena"])
    answer = validate(python)
    equal(answer.code, 0, answer.err)
    report = answer.json()
    equal(report["events"], {"predicted_allocations": 16, "measured_allocations": 16, "equal_allocations": 16}, "events")
    # Of 1 MiB and twice 16 MiB: 1 MiB is left over for the first small weights, then regions double until 16 MiB fit.
    equal(report["regions"], {"predicted": 3, "measured": 3, "equal": 3}, "regions")
    equal(report["first_divergence"], None, "divergence")
    equal(report["peak"]["reserved"], {"predicted_bytes": 33 << 20, "measured_bytes": 33 << 20}, "arena")
    weights = sum(size for _, size, _ in SESSIONS["requests"]["phases"][0])
    equal(report["steps"][0]["peak"]["requested"], {"predicted_bytes": weights, "measured_bytes": weights}, "weights")
    with open(os.path.join(ROOT, "docs", "validate.schema.json")) as f:
        jsonschema.validate(report, json.load(f))
    text = validate(python, json_report=False).out
    for part in ("AGREES", "onnxruntime-gpu 1.31.1 on an emulated", "run 2", "3 regions of the arena predicted, 3 measured, 3 equal", "is where ONNX Runtime has it"):
        check(part in text, f"{part!r} is missing in {text}")
    check("PyTorch" not in text, text)


def test_a_session_that_differs_says_where():
    requests = json.loads(json.dumps(SESSIONS["requests"]))
    block = next(r for r in requests["phases"][2] if r[1] == 1048576)  # the memory pattern of the second run
    block[1] += 512
    answer = validate(stub("ort-other", requests, SESSIONS["arena"]), "--tolerance", "0")
    equal(answer.code, 1, answer.err)
    report = answer.json()
    first = report["first_divergence"]
    # What comes after it is equal again: one is missing, and another one is there.
    equal((first["kind"], first["step"], first["predicted_bytes"]), ("only predicted", 2, 1048576), "divergence")
    equal(report["events"]["equal_allocations"], 15, "equal")
    check("memory pattern" in first["text"], first["text"])
    equal(report["agrees"], False, "agrees")


def test_a_session_that_runs_out_of_memory():
    arena = {**SESSIONS["arena"], "phases": SESSIONS["arena"]["phases"][:1], "out_of_memory": "Failed to allocate memory for requested buffer of size 8"}
    answer = validate(stub("ort-oom", SESSIONS["requests"], arena))
    equal(answer.code, 1, answer.err)
    equal(answer.json()["out_of_memory"]["measured"], arena["out_of_memory"], "message")
    check("ONNX Runtime runs out of memory, the prediction does not" in answer.out, answer.out)


def refused(answer, code, *says):
    equal(answer.code, code, answer.err)
    equal((answer.out, answer.err.count("\n")), ("", 1), answer.err)
    for text in says:
        check(text in answer.err, f"{text!r} is missing in {answer.err}")


def test_what_a_session_lacks_is_said_in_one_line():
    os.makedirs(scratch("plain/bin"))
    refused(validate("auto", json_report=False), 2, "onnxruntime-gpu", "pip install")
    refused(validate(scratch("plain/bin/python"), json_report=False), 2, "does not have it", "pip install")
    missing = {"error": "the CUDA provider of onnxruntime 1.31.1 does not load: libcublasLt.so.13", "kind": "missing"}
    refused(validate(stub("ort-missing", missing, missing), json_report=False), 2, "libcublasLt.so.13", "pip install")
    wrong = {"error": "INVALID_ARGUMENT: delta in Range operator can not be zero", "kind": "run"}
    refused(validate(stub("ort-wrong", wrong, wrong), json_report=False), 3, "does not run this file", "computes nothing")
    for name, reply in (("nothing", ""), ("nonsense", "hello"), ("odd", {"version": 5}), ("negative", {"version": "1", "phases": [[[False, -1, 1]]]})):
        refused(validate(stub("ort-" + name, reply, reply), json_report=False), 70, "ONNX Runtime")
    words = ("validate", MLP, "--batch", "64", "--runtime", "ort")
    refused(memplan(*words, "--on", "cuda"), 2, "emulated")
    refused(memplan(*words, "--measured", "data/measured/snapshots/mlp-h100.pickle"), 2, "PyTorch's", "figure")
    equal(memplan(*words, "--ort", "arena_extend_strategy=kSameAsRequested", "--measured", "25596160", "--counter", "reserved", "--tolerance", "0").code, 0, "a figure")


def node_stats(*words):
    path = scratch("stats.csv")
    answer = memplan(*words, "--runtime", "ort", "--no-search", "--export", f"ort-node-stats={path}")
    equal(answer.code, 0, answer.err)
    with open(path) as f:
        lines = f.read().splitlines()
    equal(lines[0], "#name,input_sizes,initializers_sizes,total_dynamic_sizes,total_temp_allocations", "the first line")
    rows = [(r[0], list(map(int, r[1:]))) for r in csv.reader(lines[1:])]
    check(all(len(costs) == 4 and min(costs) >= 0 for _, costs in rows), "four sizes in each line")
    return rows


def test_the_file_by_which_onnx_runtime_places_nodes():
    rows = node_stats(MLP, "--batch", "64")
    equal([name for name, _ in rows], NAMES, "nodes in their order, under ONNX Runtime's names for them")
    # Weights as the arena rounds them: a product and its bias each.
    equal([costs[1] for _, costs in rows], [6422528 + 8192, 0, 16777216 + 8192, 0, 81920 + 256], "weights")
    # All together: what ONNX Runtime's arena held of that file in the end (tests/unit/onnxruntime.cpp has the requests).
    equal(sum(sum(costs) for _, costs in rows), 25596160, "all nodes")
    report = memplan(MLP, "--batch", "64", "--runtime", "ort", "--ort", "arena_extend_strategy=kSameAsRequested", "--no-search", "--format", "json").json()
    equal(report["counters"]["reserved_bytes"], 25596160, "the estimate of the whole session")
    check("ort_node_stats" not in report, "only where it is asked for")


def test_node_stats_are_refused_where_nobody_knows_the_names():
    path = scratch("refused.csv")
    plain = ("data/models/ort/bert_mini.plain.onnx.gz", "--batch", "2", "--seq", "16", "--export", f"ort-node-stats={path}")
    refused(memplan(*plain, "--runtime", "ort", "--onnxruntime", "none"), 2, "pip install onnxruntime", "optimized_model_filepath")
    refused(memplan(model("mlp"), "--export", f"ort-node-stats={path}"), 2, "--runtime ort")
    check(not os.path.exists(path), "nothing is written")


def graph(name, nodes, *inputs):
    """x [batch, 256] -> y, with one weight w of 256 KiB."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 256]) for n in "xy")
    w = helper.make_tensor("w", TensorProto.FLOAT, [256, 256], bytes(256 * 256 * 4), raw=True)
    made = helper.make_model(helper.make_graph(nodes, name, [x, *inputs], [y], [w]), opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return write(name + ".onnx", made.SerializeToString())


def report_of(path):
    return memplan(path, "--batch", "4096", "--runtime", "ort", "--onnxruntime", "none", "--no-search", "--format", "json").json()


def test_nodes_on_the_cpu_are_named():
    product = lambda a, b: helper.make_node("MatMul", [a, "w"], [b], name=b)
    report = report_of(graph("without-kernels", [product("x", "a"), helper.make_node("Atan", ["a"], ["b"]), helper.make_node("Asinh", ["b"], ["c"]), product("c", "y")]))
    said = {u["op"]: u for u in report["unmodelled"]}
    check("has no kernel of it" in said["Atan"]["handling"] and "knows no CUDA kernel" in said["Asinh"]["handling"], said)
    equal((said["Atan"]["widened_by_bytes"], said["Asinh"]["widened_by_bytes"]), (0, 2 * 4096 * 256 * 4), "what both may add")
    # Requested bytes as a session of onnxruntime-gpu 1.31.1 on the emulated H100 had them at their peak.
    equal(report["counters"]["requested_bytes"], 12845056, "copies on both sides of them")


def test_control_flow_has_a_range():
    branches = [helper.make_graph([helper.make_node(op, inputs, [out])], out, [], [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)])
                for op, inputs, out in (("MatMul", ["a", "w"], "t"), ("Relu", ["a"], "e"))]
    path = graph("branches", [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])],
                 helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    report = report_of(path)
    check(any("If, Loop and Scan" in u["handling"] for u in report["unmodelled"]), report["unmodelled"])
    # What a session of onnxruntime-gpu 1.31.1 on the emulated H100 had at its peak.
    bounds = report["ranges"]["requested_bytes"]
    check(bounds["low_bytes"] <= 12845056 <= bounds["high_bytes"], bounds)
