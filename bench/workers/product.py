"""One product of a linear layer, in onnxruntime with our operators ("ours"), with its own ("MLAS"), or in PyTorch.

What to prepare is "rows,K,N,kind": kind 0 is X·W + B, 1 is dY·Wᵀ, 2 is Xᵀ·dY with ΣdY. See protocol.py.
"""

import sys

import numpy as np
from protocol import aligned, serve

WHO = sys.argv[1]
NODES = {
    "ours": (
        "(float[M, K] x, float[K, N] w, float[N] b) => (float[M, N] y) { y = com.microsoft.LinearTraining(x, w, b) }",
        "(float[M, N] d, float[M, K] x, float[K, N] w) => (float[M, K] y) { y = com.microsoft.LinearGrad(d, x, w) }",
        "(float[M, N] d, float[M, K] x, float[K, N] w) => (float[K, N] y, float[N] s) "
        "{ _, y, s = com.microsoft.LinearGrad(d, x, w) }",
    ),
    "MLAS": (
        "(float[M, K] x, float[K, N] w, float[N] b) => (float[M, N] y) { m = MatMul(x, w)  y = Add(m, b) }",
        "(float[M, N] d, float[K, N] w) => (float[M, K] y) { y = Gemm<transB = 1>(d, w) }",
        "(float[M, N] d, float[M, K] x) => (float[K, N] y, float[N] s) "
        "{ y = Gemm<transA = 1>(x, d)  a = Constant<value = int64[1] {0}>()  s = ReduceSum<keepdims = 0>(d, a) }",
    ),
}


def arrays(m, k, n):
    rng = np.random.default_rng(0)
    shapes = {"x": (m, k), "w": (k, n), "b": (n,), "d": (m, n)}
    return {
        name: aligned(rng.normal(size=s).astype(np.float32) / k**0.5) for name, s in shapes.items()
    }


def in_onnxruntime(values, kind, threads):
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if WHO == "ours":
        import onnxgrad

        onnxgrad.register(options)
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> net '
    model = onnx.parser.parse_model(head + NODES[WHO][kind])
    for node in model.graph.node:  # an output that nobody wants has no name
        for i, name in enumerate(node.output):
            node.output[i] = "" if name == "_" else name
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    inputs = {i.name: values[i.name] for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    results = {n: aligned(r) for n, r in zip(names, session.run(names, inputs))}
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for name, array in results.items():
        binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    return lambda: session.run_with_iobinding(binding), lambda: results


def in_pytorch(values, kind, threads):
    import torch

    torch.set_num_threads(threads)
    x, w, b, d = (torch.from_numpy(values[name]) for name in "xwbd")
    y = (torch.empty_like(d), torch.empty_like(x), torch.empty_like(w))[kind]
    s = torch.empty_like(b)

    def call():
        if kind == 0:
            torch.addmm(b, x, w, out=y)
        elif kind == 1:
            torch.mm(d, w.t(), out=y)
        else:
            torch.mm(x.t(), d, out=y)
            torch.sum(d, 0, out=s)

    return call, lambda: {"y": y.numpy(), **({"s": s.numpy()} if kind == 2 else {})}


def prepare(line, threads):
    *shape, kind = (int(word) for word in line.split(","))
    make = in_pytorch if WHO == "PyTorch" else in_onnxruntime
    return make(arrays(*shape), kind, threads)


if __name__ == "__main__":
    serve(prepare)
