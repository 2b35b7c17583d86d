"""The Perfetto trace, read by the messages of the perfetto package (its trace processor is a binary that the package
downloads when it is first used, so it is asked only where one is at hand)."""
import os
import shutil
import subprocess

import reports
from support import check, equal

EVERY = [(name,) for name in reports.SETUPS]


def unavailable():
    try:
        import perfetto.protos.perfetto.trace.perfetto_trace_pb2  # noqa: F401
    except ImportError:
        return "the package perfetto is not installed (tests/requirements.txt)"
    return None


def packets(setup):
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
    trace = pb.Trace()
    trace.ParseFromString(reports.data(setup, "perfetto"))
    return trace.packet


def unknown(message):
    """Fields that perfetto's own schema does not have."""
    from google.protobuf.unknown_fields import UnknownFieldSet
    found = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in [value] if hasattr(value, "ListFields") else value:
                found += unknown(inner)
    return found


def test_every_field_is_known(setup):
    list_ = packets(setup)
    check(len(list_) > 100, "there is a trace")
    equal(sum(unknown(p) for p in list_[:3000]), 0, "unknown fields")


test_every_field_is_known.cases = [("mlp",), ("gpt2",)]


def tracks(list_):
    """{uuid: descriptor}, names of events by id"""
    described = {p.track_descriptor.uuid: p.track_descriptor for p in list_ if p.HasField("track_descriptor")}
    names = {n.iid: n.name for p in list_ for n in p.interned_data.event_names}
    return described, names


def path_of(described, uuid):
    parts = []
    while uuid:
        parts.insert(0, described[uuid].name)
        uuid = described[uuid].parent_uuid
    return parts


def test_counters_have_the_peaks(setup):
    list_ = packets(setup)
    described, _ = tracks(list_)
    counters = reports.document(setup)["counters"]
    highest = {}
    for p in list_:
        if p.track_event.type == p.track_event.TYPE_COUNTER:
            d = described[p.track_event.track_uuid]
            equal(d.counter.unit, d.counter.UNIT_SIZE_BYTES, "unit")
            highest[d.name] = max(highest.get(d.name, 0), p.track_event.counter_value)
    for name in ("requested", "allocated", "reserved"):
        equal(highest[name], counters[f"{name}_bytes"], name)
    equal(highest["process (nvidia-smi)"], counters["process_bytes"], "process")


test_counters_have_the_peaks.cases = EVERY


def test_slices_nest(setup):
    """Times ascend, every slice that begins ends, and the program's slices are step, phase, op."""
    list_ = [p for p in packets(setup)]
    described, names = tracks(list_)
    stacks, last, ops, depth = {}, 0, 0, 0
    equal(list_[len(described)].sequence_flags, 3, "the first event clears the state")
    for p in list_:
        e = p.track_event
        if not p.HasField("track_event") or e.type == e.TYPE_COUNTER:
            continue
        check(p.timestamp >= last, "ascending")
        last = p.timestamp
        stack = stacks.setdefault(e.track_uuid, [])
        if e.type == e.TYPE_SLICE_BEGIN:
            stack.append(names[e.name_iid])
            if described[e.track_uuid].name == "program":
                depth = max(depth, len(stack))
                ops += len(stack) == 3
            else:
                equal(len(stack), 1, "one life at a time in a lane")
        else:
            check(stack, "an end without a begin")
            stack.pop()
    equal([s for s in stacks.values() if s], [], "slices left open")
    t = reports.document(setup)["timeline"]
    equal((depth, ops), (3, t["ops"]["of"]), "step, phase, op; and every op")


test_slices_nest.cases = EVERY


def test_lives_carry_their_bytes():
    list_ = packets("gpt2")
    described, _ = tracks(list_)
    lives = [p.track_event for p in list_ if p.track_event.type == p.track_event.TYPE_SLICE_BEGIN and path_of(described, p.track_event.track_uuid)[1:2] == ["allocations"]]
    a = reports.document("gpt2")["timeline"]["allocations"]
    equal(sorted(next(n.int_value for n in e.debug_annotations if n.name == "bytes") for e in lives), sorted(a["bytes"]), "bytes")


def test_the_trace_processor_reads_it():
    binary = os.environ.get("MEMPLAN_TRACE_PROCESSOR") or shutil.which("trace_processor_shell") or shutil.which("trace_processor")
    if not binary:
        return "no trace_processor_shell on PATH or in MEMPLAN_TRACE_PROCESSOR"
    query = "select max(value) from counter join counter_track t on t.id = counter.track_id where t.name = 'allocated'"
    done = subprocess.run([binary, "query", reports.made("gpt2")["perfetto"], query], capture_output=True, text=True, timeout=120)
    check(str(reports.document("gpt2")["counters"]["allocated_bytes"]) in done.stdout.replace(".000000", ""), done.stdout + done.stderr)
