# Has ONNX Runtime rewrite a graph, without running it. memplan starts it:
#   python -I -c "…" PACKAGES FOLDER LEVEL
# FOLDER has model.onnx; its weights are zeros in a file without blocks. Writes FOLDER/optimized.onnx, and says the
# version, or "no: REASON", then a line for every node: its index in the session and its first output. The order in
# which a session runs its nodes follows from these indices; the format .ort has them, .onnx has not.
import os
import resource
import sys

BYTES = 12 << 30
# What the CPU provider fuses and the CUDA provider does not.
ONLY_CPU = ["ConvActivationFusion", "GemmActivationFusion", "QDQSelectorActionTransformer", "QDQS8ToU8Transformer"]


def session(ort, folder, level, out, settings):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, "ORT_ENABLE_" + level)
    options.optimized_model_filepath = os.path.join(folder, out)
    for name, value in settings.items():
        options.add_session_config_entry(name, value)
    ort.InferenceSession(os.path.join(folder, "model.onnx"), options, providers=["CPUExecutionProvider"], disabled_optimizers=ONLY_CPU)


def indices(path):
    from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs.InferenceSession import InferenceSession

    with open(path, "rb") as f:
        graph = InferenceSession.GetRootAsInferenceSession(f.read(), 0).Model().Graph()
    for i in range(graph.NodesLength()):
        node = graph.Nodes(i)
        names = [node.Outputs(k).decode() for k in range(node.OutputsLength())]
        yield node.Index(), next(filter(None, names), "")


def main(packages, folder, level):
    sys.path.insert(0, packages)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        import onnxruntime as ort

        session(ort, folder, level, "optimized.onnx", {"session.optimized_model_external_initializers_file_name": "optimized.weights",
                                                "session.optimized_model_external_initializers_min_size_in_bytes": "1024"})
        session(ort, folder, level, "optimized.ort", {"session.save_model_format": "ORT"})
        lines = [f"{index}\t{output}" for index, output in indices(os.path.join(folder, "optimized.ort"))]
    except BaseException as error:
        print("no: " + " ".join(str(error).split())[:300])
        return
    print(ort.__version__, *lines, sep="\n")


main(*sys.argv[1:])
