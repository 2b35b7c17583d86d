#!/usr/bin/env python3
"""Records what PyTorch's caching allocator does with seeded random programs: data/traces/*.txt, for tests/unit/traces.cpp.

    LD_PRELOAD=.../libemulated_gpu.so python tools/allocator_traces/record.py data/traces    (emulated_gpu)

Runs on a real device as well, but its addresses and its total then differ. The format is in FORMAT below.
"""
import os
import random
import subprocess
import sys

FORMAT = """\
# What PyTorch {version}'s caching allocator answers to a seeded random program (tools/allocator_traces/record.py).
# sizes: the vocabulary of the program, in bytes. An event is one word: 'k' asks for size k of the vocabulary on stream
# 0, 'k@s' on stream s, '=b' for b bytes, '!' before it: the request failed; '-n' frees the n-th successful request
# counted from 0; 'x' empties the cache. A line 'at' states, after the events before it: requested, allocated, active and
# reserved bytes, segments, free pieces of split segments and their bytes, retries, failures, and a checksum of the
# addresses: the sum over the live requests n of (n + 1) * (address - first address of the trace) / 512, modulo 2^40.
"""

EVENTS, EVERY = 10000, 250
KIB, MIB = 1 << 10, 1 << 20

# name, PYTORCH_ALLOC_CONF, bytes of the device, seeds
SETTINGS = [
    ("default", "", 16 << 30, (1, 2)),
    ("default-tight", "", 3 << 30, (3, 4)),
    ("expandable", "expandable_segments:True", 16 << 30, (5, 6)),
    ("expandable-tight", "expandable_segments:True", 3 << 30, (7,)),
    ("max-split", "max_split_size_mb:64", 4 << 30, (8, 9)),
    ("roundup", "roundup_power2_divisions:4", 16 << 30, (10,)),
    ("roundup-list", "roundup_power2_divisions:[1:8,8:4,64:2,>:1]", 8 << 30, (11,)),
    ("garbage", "garbage_collection_threshold:0.6,per_process_memory_fraction:0.5", 6 << 30, (12, 13)),
    ("everything", "max_split_size_mb:200,max_non_split_rounding_mb:40,garbage_collection_threshold:0.8,per_process_memory_fraction:0.9,"
                   "roundup_power2_divisions:8", 4 << 30, (14,)),
]


def vocabulary(rng):
    """Sizes as models have them: a few of each kind, used again and again."""
    sizes = [rng.randrange(4, 4096, 4) for _ in range(8)]
    sizes += [rng.randrange(4 * KIB, MIB, 4) for _ in range(10)]
    sizes += [rng.randrange(MIB, 10 * MIB, 1024) for _ in range(12)]
    sizes += [rng.randrange(10 * MIB, 64 * MIB, 4096) for _ in range(12)]
    sizes += [rng.randrange(64 * MIB, 400 * MIB, 65536) for _ in range(4)]
    sizes += [512, MIB, MIB + 4, 10 * MIB, 10 * MIB - 512, 2 * MIB, 20 * MIB, 32 * MIB, 64 * MIB]
    return sizes


def record(conf, total, seed, out):
    import torch

    rng = random.Random(seed)
    sizes = vocabulary(rng)
    weights = [8] * 8 + [8] * 10 + [8] * 12 + [4] * 12 + [1] * 4 + [3] * 9
    alloc = lambda n, s: torch._C._cuda_cudaCachingAllocator_raw_alloc(n, s)
    streams = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(2)]
    handles = [s.cuda_stream for s in streams]
    live, words, first, count = {}, [], None, 0
    live_bytes = 0
    target = total // 2
    for event in range(1, EVENTS + 1):
        dice = rng.random()
        if event % 500 == 0:
            target = int(total * rng.uniform(0.05, 0.95))
        if dice < 0.0005:
            torch.cuda.empty_cache()
            words.append("x")
        elif live and dice < (0.65 if live_bytes > target else 0.42):
            # Young blocks die first more often than not.
            numbers = list(live)
            n = numbers[-1 - min(int(rng.expovariate(1 / 12)), len(numbers) - 1)] if rng.random() < 0.7 else rng.choice(numbers)
            pointer, bytes_ = live.pop(n)
            live_bytes -= bytes_
            torch._C._cuda_cudaCachingAllocator_raw_delete(pointer)
            words.append(f"-{n}")
        else:
            k = rng.choices(range(len(sizes)), weights)[0]
            size, word = sizes[k], str(k)
            if rng.random() < 0.15:
                size = int(2 ** rng.uniform(2, 27))
                word = f"={size}"
            s = rng.choices((0, 1, 2), (16, 3, 1))[0]
            word += f"@{s}" if s else ""
            try:
                pointer = alloc(size, handles[s])
            except torch.OutOfMemoryError:
                words.append("!" + word)
            else:
                first = pointer if first is None else first
                live[count] = (pointer, size)
                live_bytes += size
                count += 1
                words.append(word)
        if event % EVERY == 0:
            st = torch.cuda.memory_stats()
            checksum = sum((n + 1) * ((p - first) // 512) for n, (p, _) in live.items()) % (1 << 40)
            at = [st["requested_bytes.all.current"], st["allocated_bytes.all.current"], st["active_bytes.all.current"],
                  st["reserved_bytes.all.current"], st["segment.all.current"], st["inactive_split.all.current"],
                  st["inactive_split_bytes.all.current"], st["num_alloc_retries"], st["num_ooms"], checksum]
            words.append("\nat " + " ".join(map(str, at)) + "\n")
    with open(out, "w") as f:
        f.write(FORMAT.format(version=torch.__version__))
        f.write(f"conf {conf}\ntotal {total}\nsizes {' '.join(map(str, sizes))}\n")
        f.write(" ".join(words).replace(" \n", "\n").replace("\n ", "\n"))


def main():
    if len(sys.argv) == 5:
        record(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
        return
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for name, conf, total, seeds in SETTINGS:
        for seed in seeds:
            out = os.path.join(folder, f"{name}-{seed}.txt")
            env = dict(os.environ, EMULATED_GPU_TOTAL=str(total), EMULATED_GPU_CONTEXT="0")
            env.pop("PYTORCH_CUDA_ALLOC_CONF", None)
            if conf:
                env["PYTORCH_ALLOC_CONF"] = conf
            subprocess.run([sys.executable, __file__, conf, str(total), str(seed), out], env=env, check=True)
            print(out, os.path.getsize(out))


main()
