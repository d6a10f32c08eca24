"""A training step of PyTorch, eager, with its fused AdamW; see protocol.py."""

import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from protocol import serve, steps_of_torch


def mlp(w, x):
    for i in range(3):
        x = F.linear(x, w[f"w{i}"], w[f"b{i}"])
        x = F.relu(x) if i < 2 else x
    return x


def resnet(w, x):
    def conv(h, name, stride=1):
        weight = w[f"{name}/w"]
        h = F.conv2d(h, weight, stride=stride, padding=weight.shape[2] // 2)
        mean, var, scale, shift = (w[f"{name}/{n}"] for n in "mvsb")
        return F.batch_norm(h, mean, var, scale, shift, training=True)

    h = F.relu(conv(x, "stem"))
    for stage in range(4):
        for block in range(2):
            stride, name = 2 if stage and not block else 1, f"{stage}{block}"
            y = conv(F.relu(conv(h, f"{name}a", stride)), f"{name}b")
            h = F.relu(y + (conv(h, f"{name}s", stride) if stride > 1 else h))
    return F.linear(h.mean((2, 3)), w["w"], w["b"])


def lstm(w, x):
    hidden = w["R"].shape[2]
    bias_w, bias_r = w["B"][0].split(4 * hidden)
    zero = x.new_zeros(1, x.shape[1], hidden)
    flat = [w["W"][0], w["R"][0], bias_w, bias_r]
    output = torch.lstm(x, (zero, zero), flat, True, 1, 0.0, True, False, False)[0]
    return F.linear(output[-1], w["w"], w["b"])


def gru(w, x):
    hidden = w["R"].shape[2]
    flat = []
    for d in range(2):
        flat += [w["W"][d], w["R"][d], *w["B"][d].split(3 * hidden)]
    zero = x.new_zeros(2, x.shape[1], hidden)
    y = torch.gru(x, zero, flat, True, 1, 0.0, True, True, False)[0]
    return F.linear(y.mean(0), w["w"], w["b"])


GATES = {
    "lstm": [0, 2, 3, 1],
    "gru": [1, 0, 2],
}  # ONNX stacks i o f c and z r h, PyTorch i f c o and r z h


def reorder(w, order):
    for name, parts in (("W", 1), ("R", 1), ("B", 2)):
        blocks = w[name].reshape(w[name].shape[0], parts, len(order), -1, *w[name].shape[2:])
        w[name] = np.ascontiguousarray(blocks[:, :, order]).reshape(w[name].shape)


def lenet(w, x):
    for i in range(2):
        x = F.max_pool2d(F.relu(F.conv2d(x, w[f"c{i}"], w[f"d{i}"], padding=2)), 2)
    return F.linear(F.relu(F.linear(x.flatten(1), w["w0"], w["b0"])), w["w"], w["b"])


def mobilenet(w, x):
    def conv(h, name, stride=1):
        weight = w[f"{name}/w"]
        groups = weight.shape[0] if weight.shape[1] == 1 else 1
        h = F.conv2d(h, weight, stride=stride, padding=weight.shape[2] // 2, groups=groups)
        mean, var, scale, shift = (w[f"{name}/{n}"] for n in "mvsb")
        return F.batch_norm(h, mean, var, scale, shift, training=True)

    h = F.relu6(conv(x, "stem"))
    for i, stride in enumerate((1, 2, 1, 2, 1)):
        y = conv(F.relu6(conv(F.relu6(conv(h, f"{i}a")), f"{i}b", stride)), f"{i}c")
        h = h + y if stride == 1 else y
    return F.linear(h.mean((2, 3)), w["w"], w["b"])


def audio(w, x):
    for i in range(4):
        x = F.relu(F.conv1d(x, w[f"c{i}"], w[f"d{i}"], stride=2 if i else 4, padding=4))
    return F.linear(x.mean(2), w["w"], w["b"])


def deepfm(w, x):
    e = F.embedding(x, w["embedding"])
    pairs = e.sum(1) ** 2 - (e * e).sum(1)
    deep = e.flatten(1)
    for i in range(2):
        deep = F.relu(F.linear(deep, w[f"w{i}"], w[f"b{i}"]))
    return F.linear(torch.cat([pairs, deep], 1), w["w"], w["b"])


def transformer(w, x):
    d, heads = w["embedding"].shape[1], 4

    def linear(h, name):
        return F.linear(h, w[f"{name}/w"].t(), w[f"{name}/b"])

    h = F.embedding(x, w["embedding"]) + w["position"]
    n, s, _ = h.shape
    for i in range(4):
        q, k, v = (linear(h, f"{i}{c}").view(n, s, heads, -1).transpose(1, 2) for c in "qkv")
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, s, d)
        h = F.layer_norm(h + linear(mixed, f"{i}o"), (d,), w[f"{i}n1/g"], w[f"{i}n1/s"])
        up = F.relu(linear(h, f"{i}up"))
        h = F.layer_norm(h + linear(up, f"{i}down"), (d,), w[f"{i}n2/g"], w[f"{i}n2/s"])
    return linear(h, "out").flatten(0, 1)


FORWARD = {
    "mlp": mlp, "lenet": lenet, "resnet": resnet, "mobilenet": mobilenet, "audio": audio, "lstm": lstm, "gru": gru,
    "transformer": transformer, "deepfm": deepfm,
}  # fmt: skip


def prepare(folder, threads):
    torch.set_num_threads(threads)
    line = json.loads(Path(folder, "line.json").read_text())
    data = np.load(f"{folder}/batch.npz")
    weights = dict(np.load(f"{folder}/weights.npz"))
    if line["name"] in GATES:
        reorder(weights, GATES[line["name"]])
    w = {n: torch.tensor(a) for n, a in weights.items()}
    trained = [t.requires_grad_() for n, t in w.items() if not n.endswith(("/m", "/v"))]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    x, y = torch.tensor(data["x"]), torch.tensor(data["y"]).flatten()
    forward = FORWARD[line["name"]]
    return steps_of_torch(lambda: forward(w, x), y, optimizer)


if __name__ == "__main__":
    serve(prepare)
