"""memplan suggest, size and sweep: what they recommend is estimated again, one command at a time."""
import csv
import io
import json
import os
import re
import shlex
import tomllib

import jsonschema

from support import ROOT, check, equal, memplan, model, scratch, write

GPT2 = ["--gpu", "a10", "--batch", "32", "--seq", "256"]


def schema():
    with open(os.path.join(ROOT, "docs", "planner.schema.json")) as f:
        return json.load(f)


def suggest(*words):
    answer = memplan("suggest", model("llama-tiny"), "--gpu", "rtx3060-12gb", "--batch", "48", "--seq", "512", *words, "--format", "json")
    return answer, json.loads(answer.out)


def estimate_again(command):
    words = shlex.split(command)
    equal(words[0], "memplan", "the command")
    return memplan(*words[1:], "--no-search", "--format", "json", "--exit-zero").json()


def confirmed(found, samples):
    """All candidates, once what is said of them has been estimated again by itself."""
    times = [c["step_microseconds"]["total"] / c["samples_per_step"] for c in found["fitting"]]
    equal(times, sorted(times), "fastest first")
    candidates = found["fitting"] + [found["smallest_change"]] + found["front"]
    for candidate in candidates:
        again = estimate_again(candidate["command"])
        equal(again["summary"]["verdict"], "fits", candidate["command"])
        equal(again["summary"]["peak_bytes"], candidate["peak_bytes"], candidate["command"])
        equal(candidate["samples_per_step"], samples, "samples per optimizer step stay")
    return candidates


def test_recommendations_hold():
    answer, found = suggest()
    equal(answer.code, 0, "exit code")
    jsonschema.validate(found, schema())
    equal(found["present"]["verdict"], "no-fit", "the present setup")
    check(len(found["fitting"]) >= 2, "several recommendations")
    for candidate in confirmed(found, samples=48):
        equal(candidate["micro_batch"] * candidate["accumulate"], 48, "micro-batches make up the batch")
    check(all(c["knobs_turned"] >= found["smallest_change"]["knobs_turned"] for c in found["fitting"]), "the smallest change turns the fewest knobs")
    for near, far in zip(found["front"], found["front"][1:]):
        check(near["peak_bytes"] <= far["peak_bytes"] and near["step_microseconds"]["total"] >= far["step_microseconds"]["total"], "a front")


def test_checkpoints_around_units_of_fsdp():
    """What torch.utils.checkpoint runs again gathers the units inside of it, and casts what they take. This was the end of the process."""
    words = ["--gpu", "h100-80gb", "--batch", 1, "--seq", 512, "--fsdp", "--gpus", 8, "--fsdp-dtype", "bf16", "--reduce-dtype", "fp32", "--steps", 3]
    again = memplan(model("gpt2"), *words, "--checkpoint", "model.transformer", "--format", "json", "--exit-zero").json()
    equal(again["counters"]["requested_bytes"], 926_793_668, "as PyTorch 2.11 says (data/measured/emulated/parallel-2.11.jsonl)")
    found = memplan("size", model("pythia-160m"), "--gpu", "1GiB", "--seq", 2**20, "--batch", 100, "--checkpoint", "*", "--optimizer", "adagrad")
    equal(found.code, 1, f"nothing fits: {found.err}")


def test_answers_under_autocast_repeat():
    """Casts of a region go in one order, wherever the process has put them: addresses differ from run to run."""
    words = [os.path.join(ROOT, "data", "models", "more", "deit_tiny_patch16_224.pt2"), "--gpu", "1GiB", "--amp", "bf16", "--empty-cache", "--timeline", "--format", "json", "--exit-zero"]
    answers = {memplan(*words).out for _ in range(5)}
    equal(len(answers), 1, "different answers of five runs")


def test_rejections_are_true():
    _, found = suggest()
    checked = 0
    for rejection in found["rejected"]:
        if rejection["bytes"] is None or "--batch" in rejection["flags"] or not rejection["flags"] or rejection["why"] != "is not enough alone":
            continue
        again = memplan(model("llama-tiny"), "--gpu", "rtx3060-12gb", "--batch", "48", "--seq", "512", *rejection["flags"].split(), "--no-search", "--format", "json").json()
        check(again["summary"]["verdict"] != "fits", f"{rejection['flags']} fits after all")
        check(again["summary"]["peak_bytes"] >= rejection["bytes"], f"{rejection['flags']}: a bound from below is above the estimate")
        checked += 1
    check(checked >= 2, "rejections to check")


def test_advice_has_bytes():
    _, found = suggest()
    advice = {a["id"]: a for a in found["advice"]}
    for name in ("smaller-batch", "accumulation", "mixed-precision", "checkpointing", "no-grad", "fragmentation", "monitoring"):
        check(name in advice, f"advice about {name}")
    for a in found["advice"]:
        check(a["snippet"], f"{a['id']} has a snippet")
        if a["flags"]:
            again = memplan(model("llama-tiny"), "--gpu", "rtx3060-12gb", *(["--batch", "48"] if "--batch" not in a["flags"] else []), "--seq", "512", *a["flags"].split(),
                            "--no-search", "--format", "json", "--exit-zero").json()
            equal(again["summary"]["peak_bytes"], a["peak_bytes"], a["flags"])


def test_emit_flags():
    answer = memplan("suggest", model("gpt2"), *GPT2, "--emit-flags")
    equal(answer.code, 0, "exit code")
    flags = answer.out.split()
    check(flags and answer.out.count("\n") == 1, "one line of flags")
    check(answer.err == "", "nothing else")


def test_nothing_fits():
    answer = memplan("suggest", model("gpt2"), "--gpu", "1GiB", "--seq", "256")
    equal(answer.code, 1, "exit code")
    check("Nothing fits" in answer.out, "says so")
    equal(memplan("suggest", model("gpt2"), "--gpu", "1GiB", "--seq", "256", "--exit-zero").code, 0, "--exit-zero")


def test_options_of_a_session():
    """What is offered for ONNX Runtime needs what it says, by its own command, and its settings name the options."""
    words = ("suggest", model("resnet50"), "--gpu", "2GiB", "--batch", "64", "--runtime", "ort", "--cudnn", "none", "--onnxruntime", "none")
    answer = memplan(*words, "--format", "json")
    equal(answer.code, 0, answer.err)
    found = json.loads(answer.out)
    jsonschema.validate(found, schema())
    equal(found["present"]["verdict"], "no-fit", "as it is")
    check(found["fitting"], "something fits")
    for candidate in found["fitting"]:
        again = estimate_again(candidate["command"])
        equal((again["summary"]["verdict"], again["summary"]["peak_bytes"]), ("fits", candidate["peak_bytes"]), candidate["command"])
        check(candidate["cautions"], "what it costs")
    flags = found["fitting"][0]["flags"]
    for option in re.findall(r"--ort \S+=(\S+)", flags):
        check(f'"{option}"' in found["settings"]["text"] or option in ("0", "1"), option)
    equal(found["settings"]["framework"], "onnxruntime", "whose settings")
    larger = memplan(*words[:3], "80GB", *words[4:], "--format", "json").json()
    peaks = [larger["present"]["peak_bytes"]] + [c["peak_bytes"] for c in larger["fitting"]]
    check(len(peaks) > 1 and peaks == sorted(set(peaks), reverse=True), "what costs more needs less")
    for wrong in (("--for", "hf"), ("--allow", "all")):
        refused = memplan(*words, *wrong)
        check(refused.code == 2 and wrong[0] in refused.err, refused.err)
    equal(memplan("suggest", model("resnet50"), "--gpu", "1GiB", "--batch", "64", "--runtime", "ort").code, 1, "nothing fits")


def test_kept_knobs_stay():
    _, found = suggest("--keep", "all", "--allow", "batch")
    for candidate in found["fitting"]:
        check(set(w for w in candidate["flags"].split() if w.startswith("--")) <= {"--batch", "--accumulate"}, candidate["flags"])
    _, free = suggest("--keep-global-batch", "no", "--keep", "all", "--allow", "batch")
    check(all(c["accumulate"] == 1 for c in free["fitting"]), "without accumulation")


def test_same_answer_twice_and_no_progress_in_a_pipe():
    first = memplan("suggest", model("gpt2"), *GPT2)
    equal(first.out, memplan("suggest", model("gpt2"), *GPT2).out, "the same answer")
    equal(first.err, "", "stderr in a pipe")
    check(all(len(line) <= 100 for line in first.out.splitlines() if not line.startswith("  ")), "lines of at most 100 columns")


def settings(framework, *more):
    answer = memplan("suggest", model("gpt2"), *GPT2, "--for", framework, *more, "--format", "json").json()
    return answer["settings"]["text"], answer["fitting"][0]


def without_shell(text):
    return "\n".join(line for line in text.splitlines() if not line.startswith(("export ", "#")))


def test_settings_can_be_pasted():
    for framework in ("pytorch", "hf", "accelerate", "lightning"):
        text, first = settings(framework)
        compile(without_shell(text), framework, "exec")
        if first["accumulate"] > 1:
            check(str(first["accumulate"]) in text, f"{framework} accumulates")
    text, first = settings("deepspeed")
    config = json.loads(without_shell(text))
    equal(config["train_micro_batch_size_per_gpu"], first["micro_batch"], "DeepSpeed's micro-batch")
    equal(config["gradient_accumulation_steps"], first["accumulate"], "DeepSpeed's accumulation")
    text, first = settings("torchtitan")
    equal(tomllib.loads(without_shell(text))["training"]["local_batch_size"], first["micro_batch"], "torchtitan's micro-batch")


def test_settings_of_compiled_setups_compile():
    said = {"pytorch": "model = torch.compile(model)", "hf": "torch_compile=True", "accelerate": "model = torch.compile(model)", "lightning": "model = torch.compile(model)",
            "deepspeed": "no setting for torch.compile", "torchtitan": "no setting for torch.compile", "megatron": "no setting for torch.compile"}
    for framework, line in said.items():
        check(line in settings(framework, "--compile")[0], f"{framework} compiles")
        check("compile" not in settings(framework)[0], f"{framework} does not compile")


def test_bounds_of_accumulated_shards_lie_below_their_estimates():
    """FSDP reduces after every micro-batch, so that only a rank's share of the gradients waits; weights are most of this model."""
    answer = memplan("suggest", model("gpt2-xl"), "--gpu", "6GiB", "--batch", "1", "--seq", "128", "--gpus", "8", "--fsdp", "--accumulate", "8", "--format", "json").json()
    bounded = [r for r in answer["rejected"] if r["is_bound"] and "--fsdp" in r["flags"] and "--accumulate" in r["flags"] and "--pp" not in r["flags"]]
    check(bounded, "some are rejected by a bound")
    for r in [*bounded[:2], *(r for r in bounded if "--tp" not in r["flags"] and "--no-reshard" in r["flags"])][:6]:
        report = memplan(model("gpt2-xl"), "--gpu", "6GiB", "--seq", "128", *shlex.split(r["flags"]), "--no-search", "--exit-zero", "--format", "json").json()
        check(report["summary"]["peak_bytes"] >= r["bytes"], f"{r['flags']}: {r['bytes']} above {report['summary']['peak_bytes']}")
    check(not answer["fitting"] and answer["search"]["left"] > 0, "what was not looked at is said where nothing was found")


def test_wrong_words():
    for words, said in [
        (["suggest", model("gpt2")], "--gpu"), (["suggest", model("gpt2"), *GPT2, "--keep", "colour"], "no knob"),
        (["suggest", model("gpt2"), *GPT2, "--for", "jax"], "--for"), (["sweep", model("gpt2"), "--batch", "8..2"], "ends before"),
        (["sweep", model("gpt2"), "--batch", "1..9:3"], "no step"), (["sweep", model("gpt2"), "--amp", "none,fp9"], "fp9"),
        (["sweep", model("gpt2"), "--gpu", "a10,banana"], "banana"), (["size", model("gpt2"), "--prices", "/nowhere"], "/nowhere: the file cannot be read"),
    ]:
        answer = memplan(*words)
        equal(answer.code, 2, " ".join(words))
        check(said in answer.err, f"{' '.join(words)}: {answer.err}")


SEVERAL = ["--gpu", "rtx3060-12gb", "--gpus", "16", "--batch", "48", "--seq", "512"]


def replaced(words, flags):
    """`words` with `flags` in place of what they replace, as a user would type it."""
    parallel = {"--gpus", "--fsdp", "--tp", "--sp", "--pp", "--micro-batches", "--cp", "--zero"}
    out, i = [], 0
    names = {w for w in flags if w.startswith("--")}
    if "--gpus" in names:
        names |= parallel
    while i < len(words):
        if words[i] in names:
            i += 1
            while i < len(words) and not words[i].startswith("--"):
                i += 1
        else:
            out.append(words[i])
            i += 1
    return out + flags


def test_several_gpus():
    answer = memplan("suggest", model("llama-tiny"), *SEVERAL, "--format", "json")
    found = json.loads(answer.out)
    jsonschema.validate(found, schema())
    equal(answer.code, 0, "exit code")
    equal(found["present"]["verdict"], "no-fit", "the present setup")
    check(found["search"]["setups"] >= 10000, f"many setups: {found['search']}")
    equal(len(found["fitting"]), 3, "recommendations")
    for candidate in confirmed(found, samples=48 * 16):
        equal(candidate["gpus"], 16, "GPUs")
    check(any("--ep" in r["flags"] and "no experts" in r["why"] for r in found["rejected"]), "why there is no expert parallelism")
    equal(found["advice"], [], "tricks are those of one GPU")


def test_bounds_of_several_gpus_are_bounds():
    found = memplan("suggest", model("moe_lm"), "--gpu", "rtx3060-12gb", "--gpus", "8", "--batch", "256", "--seq", "128", "--format", "json").json()
    words = ["--gpu", "rtx3060-12gb", "--gpus", "8", "--batch", "256", "--seq", "128"]
    bounded = [r for r in found["rejected"] if r["is_bound"]]
    for rejection in bounded[:6]:
        again = memplan(model("moe_lm"), *replaced(words, rejection["flags"].split()), "--no-search", "--format", "json", "--exit-zero").json()
        check(again["summary"]["peak_bytes"] >= rejection["bytes"], f"{rejection['flags']}: a bound from below is above the estimate")
        check(again["summary"]["verdict"] != "fits", f"{rejection['flags']} fits after all")
    check(len(bounded) >= 3, "bounds to check")


MEGATRON = ["--gpu", "a10", "--gpus", "8", "--batch", "64", "--seq", "512", "--precision", "bf16"]


def test_megatron_stays_megatron():
    for way, name in (("--megatron", "megatron"), ("--dist-opt", "megatron-dist-opt")):
        report = memplan(model("llama-tiny"), *MEGATRON, way, "--tp", "2", "--sp", "--no-search", "--exit-zero", "--format", "json").json()
        equal(report["setup"]["parallel"]["sharding"], name, way)
        check(any("Megatron-LM" in a for a in report["assumptions"]), "said to be a documented model")
    answer = memplan("suggest", model("llama-tiny"), *MEGATRON, "--dist-opt", "--tp", "2", "--sp", "--for", "megatron", "--exit-zero", "--format", "json")
    found = answer.json()
    jsonschema.validate(found, schema())
    check(found["fitting"], "something fits")
    for candidate in found["fitting"]:
        again = memplan(*candidate["command"].split()[1:], "--no-search", "--format", "json", "--exit-zero").json()
        equal(again["summary"]["peak_bytes"], candidate["peak_bytes"], candidate["command"])
    text = found["settings"]["text"]
    check("pretrain_gpt.py" in text and "--bf16" in text and "--micro-batch-size" in text and "--global-batch-size 256" in text, text)
    words = ["--gpu", "2GiB", *MEGATRON[2:], "--dist-opt"]
    found = memplan("suggest", model("llama-tiny"), *words, "--exit-zero", "--format", "json").json()
    ours = [r for r in found["rejected"] if r["is_bound"] and ("--dist-opt" in r["flags"] or "--megatron" in r["flags"])]
    check(ours, "bounds of Megatron-LM")
    for rejection in ours[:4] + ours[-4:]:
        again = memplan(model("llama-tiny"), *replaced([w for w in words if w != "--dist-opt"], rejection["flags"].split()), "--no-search", "--format", "json", "--exit-zero").json()
        check(again["summary"]["peak_bytes"] >= rejection["bytes"], f"{rejection['flags']}: a bound from below is above the estimate")


def test_megatron_and_fp8_refusals():
    for words, said in [
        (["--gpus", "8", "--megatron", "--fsdp"], "contradict"), (["--gpus", "8", "--dist-opt", "--amp", "bf16"], "--dist-opt"), (["--megatron", "--precision", "bf16", "--optimizer", "lion"], "--optimizer"),
        (["--megatron", "--precision", "bf16", "--lora", "r=4"], "--lora"), (["--precision", "fp8", "--amp", "bf16"], "contradict"), (["--precision", "fp8", "--gpus", "2", "--fsdp"], "--fsdp"),
        (["--precision", "fp8-weights"], "--precision fp8-weights"), (["--precision", "fp8", "--gpu", "a100-80gb"], "compute capability"), (["--precision", "fp8", "--offload", "activations"], "--offload"),
    ]:
        answer = memplan(model("llama-tiny"), "--gpu", "h100-80gb", "--batch", "2", "--seq", "64", *words) if "--gpu" not in words else memplan(model("llama-tiny"), "--batch", "2", "--seq", "64", *words)
        equal(answer.code, 2, " ".join(words))
        check(said in answer.err, f"{' '.join(words)}: {answer.err}")


def test_fp8_is_reported_and_advised():
    words = [model("llama-tiny"), "--gpu", "h100-80gb", "--batch", "2", "--seq", "64"]
    report = memplan(*words, "--precision", "fp8", "--format", "json").json()
    equal(report["setup"]["precision"], "fp8", "the name")
    check(any("Transformer Engine" in a for a in report["assumptions"]), "said to be a documented model")
    plain = memplan(*words, "--precision", "bf16", "--no-search", "--format", "json").json()["summary"]["peak_bytes"]
    trick = {a["id"]: a for a in memplan("suggest", *words, "--precision", "bf16", "--exit-zero", "--format", "json").json()["advice"]}["fp8"]
    equal(trick["peak_bytes"], report["summary"]["peak_bytes"], "the advice is the estimate")
    equal(trick["saves_bytes"], plain - report["summary"]["peak_bytes"], "against bf16")
    check(trick["saves_bytes"] < 0, "a small model needs more in 8 bits")
    faster = memplan("suggest", *words[:1], "--gpu", "h100-80gb", "--batch", "64", "--seq", "512", "--precision", "fp8", "--exit-zero", "--format", "json").json()
    jsonschema.validate(faster, schema())


def test_kept_knobs_stay_on_several_gpus():
    found = memplan("suggest", model("llama-tiny"), *SEVERAL, "--keep", "all", "--allow", "parallel", "--format", "json").json()
    check(found["fitting"] == [] or all("--batch" not in c["flags"] and "--checkpoint" not in c["flags"] for c in found["fitting"]), "only parallelism is turned")
    found = memplan("suggest", model("llama-tiny"), *SEVERAL, "--keep", "parallel,precision", "--format", "json").json()
    check(all("--gpus" not in c["flags"] and "--amp" not in c["flags"] for c in found["fitting"]), "parallelism stays")


def test_nonsense_setups_are_refused_by_suggest():
    for words, said in [
        (["--gpus", "0"], "--gpus"), (["--gpus", "8", "--tp", "3"], "cannot be divided"), (["--gpus", "8", "--dp", "3"], "the degrees make 3"),
        (["--gpus", "7", "--tp", "7", "--seq", "512"], "7 tensor-parallel ranks do not divide the 12 attention heads"),
        (["--gpus", "16", "--pp", "16", "--seq", "512"], "the model has 12"), (["--gpus", "4", "--sp"], "--sp"), (["--gpus", "4", "--loss-parallel"], "--loss-parallel"), (["--gpus", "4", "--micro-batches", "4"], "--micro-batches"),
        (["--gpus", "4", "--pp", "4", "--pp-split", "2,4,4,3", "--seq", "512"], "13 blocks together; the model has 12"),
        (["--gpus", "4", "--pp", "4", "--pp-split", "6,6"], "2 stages were given, but the pipeline has 4"), (["--gpus", "4", "--pp-split", "12"], "--pp-split"),
        (["--gpus", "4", "--pp", "4", "--pp-split", "2,0,4,6"], "--pp-split"), (["--gpus", "4", "--zero", "9"], "--zero"), (["--gpus", "8", "--fsdp", "--hsdp", "3"], "--hsdp"), (["--gpus", "4", "--ep", "4", "--seq", "512"], "no experts"),
    ]:
        answer = memplan("suggest", model("gpt2"), "--gpu", "a10", "--batch", "4", *words)
        equal(answer.code, 2, " ".join(words))
        check(said in answer.err, f"{' '.join(words)}: {answer.err}")


def test_settings_of_several_gpus_can_be_pasted():
    def text_for(framework):
        answer = memplan("suggest", model("llama-tiny"), *SEVERAL, "--for", framework, "--format", "json").json()
        return answer["settings"]["text"], answer["fitting"][0]

    for framework in ("pytorch", "hf", "accelerate", "lightning"):
        text, first = text_for(framework)
        compile(without_shell(text), framework, "exec")
        check("fsdp" in first["flags"], "the first one shards")
        check({"pytorch": "fully_shard(", "hf": "full_shard", "accelerate": "fsdp_version=2", "lightning": "ModelParallelStrategy("}[framework] in text, f"{framework}: {text}")
    text, first = text_for("torchtitan")
    parallelism = tomllib.loads(without_shell(text))["parallelism"]
    degrees = [parallelism[f"{n}_degree"] for n in ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel", "pipeline_parallel", "context_parallel")]
    product = 1
    for degree in degrees:
        product *= degree
    equal(product, 16, f"torchtitan's degrees {degrees}")
    text, first = text_for("deepspeed")
    equal(json.loads(without_shell(text))["zero_optimization"]["stage"], 3, "DeepSpeed's stage")


def test_loss_parallel():
    """The head's layer stays cut in program and settings, and a loss that PyTorch does not divide is refused."""
    words = [model("llama-tiny"), "--gpu", "h100-80gb", "--gpus", "4", "--tp", "4", "--batch", "4", "--seq", "512"]
    divided = [*words, "--loss-parallel"]
    program = memplan("explain", *divided, "--program").out
    compile(program, "program", "exec")
    check('"model.lm_head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),' in program, program)
    check("    with loss_parallel():\n        output = model(*x)\n        loss = loss_fn(output, y)\n        loss.backward()\n" in program, program)
    program = memplan("explain", *words, "--program").out
    check('"model.lm_head": ColwiseParallel(output_layouts=Replicate()),' in program and "loss_parallel" not in program, program)
    for way, disabled in ((divided, False), (words, True)):
        text = memplan("suggest", *way, "--sp", "--keep", "parallel", "--for", "torchtitan", "--format", "json").json()["settings"]["text"]
        equal(tomllib.loads(without_shell(text))["parallelism"]["disable_loss_parallel"], disabled, text)
    report = memplan(*divided, "--no-search", "--format", "json").json()
    equal(report["setup"]["parallel"]["loss_parallel"], True, "the report says it")
    for more, said in ((["--loss", "mse"], "no loss but cross entropy"), (["--megatron"], "Megatron-LM always divides"), (["--amp", "fp16"], "GradScaler")):
        answer = memplan(*divided, *more)
        equal(answer.code, 2, " ".join(more))
        check(said in answer.err, answer.err)
    answer = memplan(model("resnet18"), "--gpu", "l4", "--gpus", "4", "--tp", "2", "--loss-parallel")
    equal(answer.code, 2, "no logits")
    check("no layer of logits" in answer.err, answer.err)


def test_fewest_gpus():
    words = [model("gpt2"), "--gpu", "t4", "--batch", "8", "--seq", "1024"]
    found = memplan("size", *words, "--format", "json").json()
    jsonschema.validate(found, schema())
    few = found["fewest_gpus"]
    check(few is not None and few["gpus"] >= 2, "one is not enough")
    again = memplan(*words, *few["flags"].split(), "--no-search", "--format", "json").json()
    equal(again["summary"]["verdict"], "fits", few["flags"])
    equal(again["summary"]["peak_bytes"], few["peak_bytes"], few["flags"])
    equal(memplan("size", model("gpt2"), "--gpu", "t4", "--seq", "64", "--format", "json").json()["fewest_gpus"], None, "one is enough")
    advice = {a["id"]: a for a in memplan("suggest", *words, "--format", "json", "--exit-zero").json()["advice"]}
    check(few["flags"] == advice["multi-gpu"]["flags"] and f"needs {few['gpus']} x" in advice["multi-gpu"]["title"], advice["multi-gpu"]["title"])


def test_more_gpus_where_nothing_fits_on_these():
    words = [model("llama-3.2-1b"), "--gpu", "6GB", "--batch", "1", "--seq", "512"]
    answer = memplan("suggest", *words, "--gpus", "2", "--format", "json")
    found = answer.json()
    jsonschema.validate(found, schema())
    equal(answer.code, 1, "nothing fits")
    equal(found["fitting"], [], "two are not enough")
    enough = found["enough_gpus"]
    check(enough["gpus"] > 2, f"more than two: {enough}")
    again = memplan(*words, *enough["flags"].split(), "--no-search", "--format", "json").json()
    equal((again["summary"]["verdict"], again["summary"]["peak_bytes"]), ("fits", enough["peak_bytes"]), enough["flags"])
    check(f"Enough: {enough['gpus']} x" in memplan("suggest", *words, "--gpus", "2").out, "the text says so, too")


def test_size_is_the_edge():
    found = memplan("size", model("gpt2"), "--gpu", "a10", "--seq", "256", "--amp", "bf16", "--format", "json").json()
    jsonschema.validate(found, schema())
    batch = found["largest_batch"]["batch"]
    for b, verdict in ((batch, True), (batch + 1, False)):
        again = memplan(model("gpt2"), "--gpu", "a10", "--seq", "256", "--amp", "bf16", "--batch", b, "--no-search", "--format", "json").json()
        equal(again["summary"]["verdict"] == "fits", verdict, f"batch {b}")
    equal(found["largest_sequence"]["position_table"], 1024, "gpt2's table of positions")
    check(found["largest_sequence"]["length"] <= 1024, "no longer than the table")


def test_longest_sequence_is_the_edge():
    words = [model("llama-tiny"), "--gpu", "rtx3060-12gb", "--batch", "4"]
    found = memplan("size", *words, "--seq", "512", "--format", "json").json()["largest_sequence"]
    if not found["at_least"] and found["length"] != found["position_table"]:
        for n, verdict in ((found["length"], True), (found["length"] + 1, False)):
            again = memplan(*words, "--seq", n, "--no-search", "--format", "json").json()
            equal(again["summary"]["verdict"] == "fits", verdict, f"sequence {n}")


def test_largest_kv_cache_is_the_edge():
    words = [model("gpt2"), "--mode", "inference", "--gpu", "a10", "--seq", "1024", "--precision", "bf16"]
    found = memplan("size", *words, "--format", "json").json()
    jsonschema.validate(found, schema())
    cache = found["largest_kv_cache"]
    equal(cache["bytes_per_token"], 12 * 12 * 64 * 2 * 2, "layers, heads, head size, key and value, bf16")
    equal((cache["length"], cache["sequences"]), (1024, cache["tokens"] // 1024), "sequences as long as the forward pass")
    for more, verdict in ((0, True), (cache["block"], False)):
        again = memplan(*words, "--kv-cache", f"sequences=1,length={cache['tokens'] + more},block=16", "--no-search", "--format", "json").json()
        equal(again["summary"]["verdict"] == "fits", verdict, f"{cache['tokens'] + more} tokens")
    budget = cache["budget"]
    equal(budget["left_bytes"], budget["limit_bytes"] - budget["weights_bytes"] - budget["activations_bytes"] - budget["other_bytes"], "the rest")
    check(0.99 < cache["tokens"] * cache["bytes_per_token"] / budget["left_bytes"] < 1.01, "the estimate is near the quotient")
    half = memplan("size", *words, "--utilization", "0.5", "--kv-cache", "length=100,dtype=fp8,block=32", "--format", "json").json()["largest_kv_cache"]
    check(half["peak_bytes"] <= found["device"]["usable_bytes"] / 2, "half of the card")
    equal((half["bytes_per_token"], half["block"], half["sequences"]), (12 * 12 * 64 * 2, 32, half["tokens"] // 128), "pages of the given cache")
    equal(memplan("size", *words, "--utilization", "50%", "--kv-cache", "length=100,dtype=fp8,block=32", "--format", "json").json()["largest_kv_cache"], half, "a percentage")
    equal(memplan("size", model("mlp"), "--mode", "inference", "--gpu", "a10", "--format", "json").json()["largest_kv_cache"], None, "no attention")
    equal(memplan("size", model("gpt2"), "--gpu", "a10", "--seq", "128", "--format", "json").json()["largest_kv_cache"], None, "training")
    for wrong in (["--utilization", "1.2"], ["--utilization", "0"], ["--utilization", "0.9", "--margin", "5%"], ["--utilization", "x"]):
        answer = memplan("size", *words, *wrong)
        check(answer.code == 2 and "--utilization" in answer.err, answer.err)


def test_cheapest_card_first():
    prices = write("prices.csv", b"card,price\na10,0.5\nh100-80gb,2\nl4,0.7\n# a note\nt4,0.2\n")
    found = memplan("size", model("gpt2"), "--batch", "8", "--seq", "1024", "--prices", prices, "--format", "json").json()
    priced = [c["price_per_hour"] for c in found["cards"] if c["price_per_hour"] is not None]
    equal(priced, sorted(priced), "cheapest first")
    equal(found["cards"][0]["key"], "a10", "the T4 is too small, the A10 is next")


def test_sweep_is_single_runs():
    words = ["--batch", "1,2..8", "--amp", "none,bf16", "--seq", "128", "--gpu", "a10"]
    rows = list(csv.DictReader(io.StringIO(memplan("sweep", model("gpt2"), *words, "--format", "csv").out)))
    equal([(r["batch"], r["amp"]) for r in rows], [(b, a) for b in ("1", "2", "4", "8") for a in ("none", "bf16")], "the grid")
    found = memplan("sweep", model("gpt2"), *words, "--format", "json").json()
    jsonschema.validate(found, schema())
    equal([r["peak"]["process_bytes"] for r in found["rows"]], [int(r["process_bytes"]) for r in rows], "both formats")
    for r in rows[::3]:
        one = memplan(model("gpt2"), "--batch", r["batch"], "--seq", "128", "--gpu", "a10", *([] if r["amp"] == "none" else ["--amp", r["amp"]]), "--no-search",
                      "--format", "json").json()
        equal(one["counters"]["process_bytes"], int(r["process_bytes"]), str(r))
        equal(one["summary"]["verdict"], r["verdict"], str(r))
    text = memplan("sweep", model("gpt2"), *words).out.splitlines()
    equal(len(text), 9, "a heading and eight rows")


def test_sweep_keeps_rows_that_fail():
    found = memplan("sweep", model("resnet50"), "--batch", "2,4", "--checkpoint", "none,layer1,nowhere", "--format", "json").json()
    equal(["error" in r for r in found["rows"]], [False, False, True] * 2, "a glob that matches nothing is an error of its row")


def test_markdown_reads_from_top_to_bottom():
    """What to do comes first, no image is needed, every table is whole, and every command that is shown does what is said."""
    words = (model("gpt2"), "--gpu", "16GB", "--batch", "16", "--seq", "1024")
    answer = memplan("suggest", *words, "--format", "md", timeout=300)
    equal(answer.code, 0, answer.err)
    text = answer.out
    order = ["## `gpt2.onnx` does not fit `t4`: what to change", "over by", "Asked with:", "### The smallest change that fits", "### The fastest that fit", "### What the peak is made of now",
             "### Memory against time", "### What each trick saves here, by itself", "### Why not", "### What this rests on"]
    places = [text.find(w) for w in order]
    check(-1 not in places and places == sorted(places), dict(zip(order, places)))
    check("![" not in text and "<img" not in text and len(text) < 60000, "no image is needed")
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.M):
        equal(len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}), 1, table)
    commands = re.findall(r"```sh\nmemplan (.*)\n```", text)
    equal(len(commands), 3, commands)
    equal(memplan(*commands[0].split(), "--format", "md", timeout=300).out, text, "the same command, the same page")
    for command in commands[1:]:
        again = memplan(*command.split(), "--no-search", "--quiet")
        equal((again.code, again.out.split()[0]), (0, "fits"), command)
        check(re.search(r"peak ([\d.]+ \w+)", again.out)[1] in text, f"{command}: {again.out}")
    nothing = memplan("suggest", *words[:-4], "--batch", "16", "--seq", "1024", "--gpu", "1GiB", "--format", "md", timeout=300)
    equal(nothing.code, 1)
    check("### Nothing fits" in nothing.out and "--allow all" in nothing.out, nothing.out)
    saved = memplan("suggest", *words, "--format", "json", "-o", scratch("suggest.json"), timeout=300)
    equal(saved.code, 0)
    refused = memplan("report", scratch("suggest.json"), "--format", "md")
    check(refused.code == 3 and "memplan suggest" in refused.err and "--format md" in refused.err, refused.err)
