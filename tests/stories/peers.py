"""The same stories in scikit-learn and PyTorch: python tests/stories/peers.py, where both and Pillow are installed.

Writes data/peers.json: of each story its score, the measure and who reached it. The rows, the networks and their
first weights are those of made.py; PyTorch trains with Adam, the same rate, epochs and batch size as the story.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import sklearn
import torch
from PIL import Image
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeCV
from sklearn.metrics import f1_score, mean_absolute_error, r2_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1]))
from stories import made

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(2)
    found = {name: {"score": round(float(score), 4), "measure": measure, "by": by}
             for name, (score, measure, by) in {**tables(), **networks()}.items()}  # fmt: skip
    versions = {"scikit-learn": sklearn.__version__, "torch": torch.__version__}
    (made.DATA / "peers.json").write_text(
        json.dumps({**found, "versions": versions}, indent=1) + "\n"
    )
    print(json.dumps(found, indent=1))


# ---- scikit-learn


def tables() -> dict[str, tuple]:
    rows = made.read_csv(made.DATA / "wine.csv")
    train, test = made.part(rows, 0.25)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    found = {}
    model.fit(made.numbers(train), [r["cultivar"] for r in train])
    right = model.score(made.numbers(test), [r["cultivar"] for r in test])
    found["wine"] = (right, "accuracy", "StandardScaler, LogisticRegression")
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    scores = cross_val_score(model, made.numbers(rows), [r["cultivar"] for r in rows], cv=folds)
    found["folds"] = (
        scores.mean(),
        "mean accuracy of 5 folds",
        "StandardScaler, LogisticRegression",
    )

    train, test = made.part(made.read_csv(made.DATA / "diabetes.csv"), 0.25)
    target = [[float(r["progression"]) for r in part] for part in (train, test)]
    ridge = make_pipeline(StandardScaler(), RidgeCV()).fit(made.numbers(train), target[0])
    answers = ridge.predict(made.numbers(test))
    found["diabetes"] = (r2_score(target[1], answers), "r2", "StandardScaler, RidgeCV")

    train, test = made.fraud(1), made.fraud(2)
    labels = [[r["fraud"] == "yes" for r in part] for part in (train, test)]
    mlp = MLPClassifier((24,), random_state=0, max_iter=400).fit(made.numbers(train), labels[0])
    auc = roc_auc_score(labels[1], mlp.predict_proba(made.numbers(test))[:, 1])
    found["fraud"] = (auc, "AUC", "MLPClassifier of 24")

    rows = made.tagged_news()
    x = np.array([[float(r[f"x{i}"]) for i in range(5)] for r in rows])
    y = np.array([[r[n] for n in ("news", "sport", "fun")] for r in rows])
    mlp = MLPClassifier((16,), random_state=0, max_iter=800).fit(x[:500], y[:500])
    score = f1_score(y[500:], mlp.predict(x[500:]), average="macro")
    found["multi-label"] = (score, "macro F1", "MLPClassifier of 16")

    rows = made.sunspots()
    x, y = made.numbers(rows), np.array([float(r["next"]) for r in rows])
    linear = LinearRegression().fit(x[:480], y[:480])
    error = np.sqrt(((linear.predict(x[480:]) - y[480:]) ** 2).mean())
    found["sunspots"] = (error, "root mean square error", "LinearRegression")

    d = made.boxes()
    linear = LinearRegression().fit(d["x"][:500], d["box"][:500])
    error = mean_absolute_error(d["box"][500:], linear.predict(d["x"][500:]))
    found["boxes"] = (error, "mean error", "LinearRegression")
    logistic = LogisticRegression().fit(d["x"][:500], d["score"][:500])
    auc = roc_auc_score(d["score"][500:], logistic.decision_function(d["x"][500:]))
    found["scores"] = (auc, "AUC", "LogisticRegression")
    return found


# ---- PyTorch


def networks() -> dict[str, tuple]:
    return {
        "pictures": (pictures(), "accuracy", "PyTorch, the same network"),
        "wake word": (wake_word(), "accuracy", "PyTorch, the same network"),
        "sentences": (sentences(), "accuracy", "PyTorch, the same network"),
        "tags": (tags(), "accuracy of words", "PyTorch, the same network"),
    }


def fit(weights: dict, forward, batches, loss, lr: float, epochs: int) -> None:
    optimizer = torch.optim.AdamW(weights.values(), lr=lr, weight_decay=0.01)
    for epoch in range(epochs):
        for batch in batches(epoch):
            optimizer.zero_grad()
            loss(forward(*batch[:-1]), batch[-1]).backward()
            optimizer.step()


def parameters(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {n: torch.tensor(a, requires_grad=True) for n, a in arrays.items()}


def shuffled(count: int, size: int, epoch: int):
    order = np.random.default_rng([0, epoch]).permutation(count)
    return (order[i : i + size] for i in range(0, count, size))


def accuracy(scores: torch.Tensor, labels: torch.Tensor) -> float:
    return (scores.argmax(1) == labels).float().mean().item()


def prepared(pixels: np.ndarray) -> np.ndarray:
    """The shorter side 28, 24 × 24 from the middle, ImageNet's statistics."""
    picture = Image.fromarray(pixels)
    wide, high = picture.size
    size = (28, int(28 * high / wide)) if wide < high else (int(28 * wide / high), 28)
    bytes_ = np.asarray(picture.resize(size, Image.BILINEAR), np.float32)
    top, left = (bytes_.shape[0] - 24) // 2, (bytes_.shape[1] - 24) // 2
    return ((bytes_[top : top + 24, left : left + 24] / 255 - MEAN) / STD).transpose(2, 0, 1)


def pictures() -> float:
    (x, y), (tx, ty) = (
        (torch.tensor(np.array([prepared(p) for _, p in found]), dtype=torch.float32),
         torch.tensor([made.SHAPES.index(s) for s, _ in found]))
        for found in (made.pictures(30, 1), made.pictures(20, 2))
    )  # fmt: skip
    arrays = made.picture_net()
    arrays |= made.weights(7, w=(24, 5), b=(5,))
    p = parameters(arrays)

    def forward(x):
        h = functional.relu(functional.conv2d(x, p["k1"], p["b1"], stride=2, padding=1))
        h = functional.relu(functional.conv2d(h, p["k2"], p["b2"], stride=2, padding=1))
        return h.mean((2, 3)) @ p["w"] + p["b"]

    batches = lambda e: ((x[i], y[i]) for i in shuffled(len(x), 15, e))  # noqa: E731
    fit(p, forward, batches, functional.cross_entropy, 0.01, 20)
    return accuracy(forward(tx), ty)


def wake_word() -> float:
    def tensors(found):
        names = ("other", "word")
        x = np.array([s for _, s in found], np.float32)[:, None]
        return torch.tensor(x), torch.tensor([names.index(n) for n, _ in found])

    (x, y), (tx, ty) = tensors(made.sounds(60, 1)), tensors(made.sounds(30, 2))
    p = parameters(made.sound_net())

    def forward(x):
        h = functional.relu(functional.conv1d(x, p["k1"], p["b1"], stride=8))
        h = functional.relu(functional.conv1d(h, p["k2"], p["b2"], stride=2))
        return h.amax(2) @ p["w"] + p["b"]

    batches = lambda e: ((x[i], y[i]) for i in shuffled(len(x), 16, e))  # noqa: E731
    fit(p, forward, batches, functional.cross_entropy, 0.003, 12)
    return accuracy(forward(tx), ty)


def numbered(texts: list[list[str]], words: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids with [CLS] and [SEP], padded with 0, and the mask."""
    width = max(map(len, texts)) + 2
    ids = np.zeros((len(texts), width), np.int64)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text) + 2] = [2, *(words.index(w) + 4 for w in text), 3]
    return torch.tensor(ids), torch.tensor(ids != 0)


def features(p: dict, ids: torch.Tensor) -> torch.Tensor:
    h = functional.conv1d(p["e"][ids].transpose(1, 2), p["k"], p["b1"], padding=1)
    return functional.relu(h)


def sentences() -> float:
    def tensors(found):
        ids, mask = numbered([t.split() for t, _ in found], made.WORDS)
        return ids, mask, torch.tensor([("blame", "praise").index(m) for _, m in found])

    train, test = tensors(made.sentences(300, 1)), tensors(made.sentences(200, 2))
    p = parameters(made.text_net(len(made.WORDS) + 4, 2))
    forward = lambda ids, mask: (features(p, ids) * mask[:, None]).amax(2) @ p["w"] + p["b"]  # noqa: E731
    batches = lambda e: (tuple(a[i] for a in train) for i in shuffled(300, 16, e))  # noqa: E731
    fit(p, forward, batches, functional.cross_entropy, 0.01, 8)
    return accuracy(forward(*test[:2]), test[2])


def tags() -> float:
    def tensors(found):
        ids, _ = numbered([w for w, _ in found], made.TAG_WORDS)
        labels = np.full(ids.shape, -100)
        for row, (_, marks) in zip(labels, found, strict=True):
            row[1 : len(marks) + 1] = [made.TAGS.index(t) for t in marks]
        return ids, torch.tensor(labels)

    train, test = tensors(made.tagged_lines(200, 1)), tensors(made.tagged_lines(100, 2))
    p = parameters(made.text_net(len(made.TAG_WORDS) + 4, len(made.TAGS)))
    forward = lambda ids: (features(p, ids).transpose(1, 2) @ p["w"] + p["b"]).transpose(1, 2)  # noqa: E731
    batches = lambda e: (tuple(a[i] for a in train) for i in shuffled(200, 16, e))  # noqa: E731
    fit(p, forward, batches, functional.cross_entropy, 0.02, 6)
    answers, labels = forward(test[0]).argmax(1), test[1]
    return (answers == labels)[labels >= 0].float().mean().item()


if __name__ == "__main__":
    main()
