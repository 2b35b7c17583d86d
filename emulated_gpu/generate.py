#!/usr/bin/env python3
"""Writes what the emulated GPU needs beside its hand-written files:

    python generate.py cards GPUS.CSV OUT.inc
    python generate.py stubs symbols.txt OUT.c HAND_WRITTEN_OBJECT…
    python generate.py collect SITE_PACKAGES symbols.txt [--if-unknown]

cards: one row per NVIDIA card of data/devices/gpus.csv whose total and number of multiprocessors are known.
stubs: one function "return 0" for every symbol of symbols.txt that no hand-written object has.
collect: adds to symbols.txt every CUDA-side symbol that the libraries of one PyTorch import, so that one library serves all;
and those of ONNX Runtime's CUDA providers, whose paths EMULATED_GPU_ALSO has, joined as in PATH.
A stub also writes what callers cannot do without, by its prototype: a fresh handle through the first argument of
"…Create…", and 0 through the size arguments of queries for buffer sizes. Nothing else is touched: an int* may well be a
device pointer.
"""
import csv
import functools
import glob
import os
import re
import subprocess
import sys

# By compute capability: resident threads and blocks of a multiprocessor, shared memory of a block (opt-in) and of a
# multiprocessor in bytes (CUDA C++ programming guide, technical specifications).
GENERATION = {
    75: (1024, 16, 65536, 65536),
    80: (2048, 32, 166912, 167936),
    86: (1536, 16, 101376, 102400),
    89: (1536, 24, 101376, 102400),
    90: (2048, 32, 232448, 233472),
    100: (2048, 32, 232448, 233472),
    103: (2048, 32, 232448, 233472),
    120: (1536, 24, 101376, 102400),
}
IMAGES = (75, 80, 86, 90, 100, 120)  # torch.cuda.get_arch_list() of the 2.11 wheel for CUDA 13.0
# L2 cache in MiB (data sheets); 40 where none is known: cuDNN's heuristics see it, the allocator does not.
L2 = {"t4": 4, "a100": 40, "a30": 24, "a10": 6, "a10g": 6, "a40": 6, "a6000": 6, "rtx3090": 6, "rtx4090": 72, "l4": 48, "l40": 96, "l40s": 96,
      "rtx6000ada": 96, "h100": 50, "h200": 60, "h20": 60, "gh200": 60, "b200": 126, "rtx5090": 96}


def cards(source, out):
    lines = []
    with open(source, newline="") as f:
        for row in csv.DictReader(f):
            sm = re.search(r"sm_(\d+)", row["arch"] or "")
            if row["vendor"] != "NVIDIA" or not row["key"] or not sm or int(sm.group(1)) not in GENERATION or not row["multiprocessors"]:
                continue
            cc = int(sm.group(1))
            threads, blocks, optin, shared = GENERATION[cc]
            if not row["cuda_total_GiB"] and not row["memory_total_MiB_reported"]:
                continue
            total = int(float(row["cuda_total_GiB"]) * 2**30) if row["cuda_total_GiB"] else int(float(row["memory_total_MiB_reported"])) << 20
            l2 = next((L2[k] for k in (row["key"], row["key"].split("-")[0]) if k in L2), 40) << 20
            image = max(i for i in IMAGES if i <= cc and i // 10 == cc // 10)
            name = row["name"] if row["name"].startswith(("NVIDIA", "Tesla")) else "NVIDIA " + row["name"]
            lines.append(f'    {{"{row["key"]}", "{name}", {cc // 10}, {cc % 10}, {row["multiprocessors"]}, {threads}, {blocks}, '
                         f"{optin}, {shared}, {l2}, {total}ull, {image}}},")
    with open(out, "w") as f:
        f.write("constexpr Card cards[] = {\n" + "\n".join(lines) + "\n};\n")


OURS = re.compile(r"^(cuda[A-Z]|__cuda|cublas|cudnn|cusolver|cusparse|cufft|curand|nccl|cupti|cuFile|cu[A-Z])")
IMPORTING = ("torch_cuda", "c10_cuda", "torch_cpu", "torch_python", "torch_cuda_linalg", "torch_nvshmem", "caffe2_nvrtc")
HEADERS = ("cuda.h", "cuda_runtime_api.h", "cublas_v2.h", "cublasLt.h", "cudnn.h", "cusolverDn.h", "cusolverSp.h", "cusparse.h", "cufft.h",
           "cufftXt.h", "nccl.h", "cupti.h", "cusparseLt.h")
SIZE_QUERY = re.compile(r"ufferSize|orkspace|Size|MakePlan|workEstimation|SpGEMM_compute|GetInfo$")
IN_VECTOR_REGISTER = re.compile(r"^(const )?(float|double|cuComplex|cuDoubleComplex)\b(?!.*\*)")


def nm(path, *options):
    out = subprocess.run(["nm", *options, path], capture_output=True, text=True).stdout
    return [line.split() for line in out.splitlines() if line.strip()]


def includes_of(packages):
    """CUDA 13 comes as one folder, nvidia/cu13; of CUDA 12 every library has its own. Triton brings crt/host_defines.h."""
    found = (glob.glob(os.path.join(packages, "nvidia", "*", "include")) + glob.glob(os.path.join(packages, "cusparselt", "include"))
             + [os.path.join(packages, "triton", "backends", "nvidia", "include")])
    return [d for d in found if os.path.isdir(d)]


@functools.cache
def texts_of(header, includes):
    found = []
    for path in (os.path.join(d, header) for d in includes):
        if os.path.exists(path):
            with open(path) as f:
                found.append(f.read())
    return found


def versioned_driver(includes):
    """Names of the driver's functions behind those of cuda.h: "#define cuLinkAddFile cuLinkAddFile_v2"."""
    define = re.compile(r"^#\s*define\s+cu[A-Z]\w*\s+(?:__CUDA_API_\w+\()?(cu[A-Z]\w*_v\d+)", re.M)
    return {name for text in texts_of("cuda.h", tuple(includes)) for name in define.findall(text)}


def wanted_symbols(packages, includes):
    names = set()
    for library in IMPORTING:
        for *_, name in nm(os.path.join(packages, "torch", "lib", f"lib{library}.so"), "-D", "--undefined-only"):
            names.add(name.split("@")[0])
    for also in filter(None, os.environ.get("EMULATED_GPU_ALSO", "").split(os.pathsep)):  # ONNX Runtime's CUDA providers
        names |= {name.split("@")[0] for *_, name in nm(also, "-D", "--undefined-only")}
        # What it looks up by name is a string in it: functions of cuDNN and cuFFT; of the driver, with their versions.
        with open(also, "rb") as f:
            strings = {n.decode() for n in re.findall(rb"(?<=\0)cu(?:dnn|fft)?[A-Z]\w+(?=\0)", f.read())}
        names |= {n for n in strings if n.startswith(("cudnn", "cufft")) or n in versioned_driver(includes)}
    # Extension modules may use all of the runtime and of NCCL, and cuDNN's run-time compiler looks up the whole driver API.
    for pattern in ("cu*/lib/libcudart.so.*", "nccl/lib/libnccl.so.*"):
        for library in glob.glob(os.path.join(packages, "nvidia", pattern)):
            names |= {row[2].split("@")[0] for row in nm(library, "-D", "--defined-only") if len(row) == 3 and row[1] in "TW"}
    for text in texts_of("cuda.h", tuple(includes)):
        names |= set(re.findall(r"\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(", text))
    return {n for n in names if OURS.match(n) and not n.startswith("__cudaGetExport")}


def preprocess(headers, includes):
    flags = [x for d in includes for x in ("-I", d)]
    text = "".join(f"#include <{h}>\n" for h in headers)
    run = subprocess.run(["g++", "-E", "-P", "-x", "c++", "-", *flags], input=text, capture_output=True, text=True)
    return run.stdout if run.returncode == 0 else None


def prototypes(names, includes):
    text = preprocess(HEADERS, includes)
    if text is None:  # one of them is missing: do without it
        text = "".join(filter(None, (preprocess([h], includes) for h in HEADERS)))
    text = re.sub(r"\s+", " ", re.sub(r"__attribute__\s*\(\(.*?\)\)", " ", text))
    found = {}
    for m in re.finditer(r"\b([A-Za-z_]\w*)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)\s*;", text):
        if m.group(1) in names:
            found.setdefault(m.group(1), [a.strip() for a in m.group(2).split(",")])
    return found


def writes(name, arguments):
    """What a stub writes, as "handle", and "size:N" or "int:N" for its integer argument number N."""
    registers, found = 0, []
    for a in arguments:
        if a in ("", "void") or IN_VECTOR_REGISTER.match(a):
            continue
        at = registers
        registers += 1
        if "*" not in a or a.startswith("const"):
            continue
        if registers == 1 and re.search(r"Create|descriptorInit", name):
            found.append("handle")
        elif SIZE_QUERY.search(name) and re.match(r"^(size_t|int64_t)\s*\*", a):
            found.append(f"size:{at}")
        elif SIZE_QUERY.search(name) and re.match(r"^int\s*\*", a) and re.search(r"work|size|buffer", a.split()[-1], re.I):
            found.append(f"int:{at}")
    return found


def read_symbols(path):
    with open(path) as f:
        lines = [line.split() for line in f if line.strip()]
    rows = {words[0]: words[1:] for words in lines if words[0] != "#"}
    versions = next((words[2:] for words in lines if words[:2] == ["#", "PyTorch"]), [])
    return rows, versions


def collect(packages, path, *options):
    rows, versions = read_symbols(path) if os.path.exists(path) else ({}, [])
    version = ".".join(torch_version(packages).split(".")[:2])
    if "--if-unknown" in options and version in versions:
        return
    includes = includes_of(packages)
    names = wanted_symbols(packages, includes)
    declared = prototypes(names, includes)
    for name in names:
        if name in declared or name not in rows:
            rows[name] = writes(name, declared.get(name, []))
    versions = sorted({version, *versions}, key=lambda v: [int(x) for x in v.split(".")])
    with open(path, "w") as f:
        f.write("# CUDA-side symbols of PyTorch's libraries, and what the answer writes: generate.py collect SITE_PACKAGES symbols.txt\n")
        f.write(f"# PyTorch {' '.join(versions)}\n")
        f.writelines(" ".join([name, *rows[name]]) + "\n" for name in sorted(rows))
    print(f"{version}: {len(names)} symbols, {len(declared)} declared; {len(rows)} of all versions")


def unknown(name):
    """Sizes of buffers that a library would compute on a device: that they are missing is noted."""
    return f'emulated_gpu_unknown("{name}"); ' if re.match(r"cusolver|cusparse|cufft|cudnn", name) else ""


def stub(name, written):
    if name.endswith(("ErrorString", "ErrorName", "StatusString", "StatusName")):
        return f'API const char* {name}(void) {{ return "error of the emulated GPU"; }}'
    # CUPTI_ERROR_MAX_LIMIT_REACHED, "no more records": with success the profiler would ask for ever.
    result = 12 if name == "cuptiActivityGetNextRecord" else 0
    body, last = "", 0
    for what in written:
        kind, _, number = what.partition(":")
        at = int(number or 0)
        last = max(last, at)
        if kind == "handle":
            body += f"if (a{at}) *(void**)a{at} = emulated_gpu_handle(); "
        else:
            body += f"if (a{at}) *({'size_t' if kind == 'size' else 'int'}*)a{at} = 0; " + unknown(name)
    parameters = ", ".join(f"size_t a{i}" for i in range(last + 1)) if body else "void"
    return f"API int {name}({parameters}) {{ {body}return {result}; }}"


def torch_version(packages):
    with open(os.path.join(packages, "torch", "version.py")) as f:
        return re.search(r"""__version__\s*=\s*['"]([^'"]+)""", f.read())[1]


def stubs(symbols, out, objects):
    rows, versions = read_symbols(symbols)
    have = {row[-1] for o in objects for row in nm(o, "--defined-only")}
    todo = sorted(rows.keys() - have)
    lines = ["/* Written by generate.py. */", "#include <stddef.h>", "void* emulated_gpu_handle(void);", "void emulated_gpu_unknown(const char*);",
             '#define API __attribute__((visibility("default")))']
    lines += [stub(n, rows[n]) for n in todo]
    # Space-separated: a program that preloads the library can tell whether it knows the PyTorch that is there.
    lines.append(f'API const char* emulated_gpu_built_for(void) {{ return "{" ".join(versions)}"; }}')
    with open(out, "w") as f:
        f.write("\n".join(lines) + "\n")
    print(f"emulated GPU: {len(rows)} symbols, {len(rows.keys() & have)} written by hand, {len(todo)} generated")


if __name__ == "__main__":
    if sys.argv[1] == "cards":
        cards(*sys.argv[2:4])
    elif sys.argv[1] == "collect":
        collect(*sys.argv[2:])
    else:
        stubs(sys.argv[2], sys.argv[3], sys.argv[4:])
