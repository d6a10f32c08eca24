"""Text as people have it: a CSV of sentences, pairs of them, words with a tag each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from stories.made import TAG_WORDS, TAGS, WORDS, peer, read_csv, sentences, tagged_lines, text_net
from stories.walk import onnxgrad, save, write_csv

tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def tokenizer(path: str, words: list[str]) -> None:
    """A number for each word, [CLS] before a text and [SEP] behind it."""
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *words])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.Lowercase()
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )  # fmt: skip
    made.enable_padding(length=64)  # as some files have it: batches must not be 64 wide for it
    made.save(path)


def convolved_words() -> list[onnx.NodeProto]:
    """Embeddings -> a convolution over three words, `r`: [N, channels, T]."""
    make = onnx.helper.make_node
    return [
        make("Gather", ["e", "input_ids"], ["x"]),
        make("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        make("Conv", ["t", "k", "b1"], ["c"], kernel_shape=[3], pads=[1, 1]),
        make("Relu", ["c"], ["r"]),
    ]


def classifier(path: str, words: int, classes: int) -> None:
    """Embeddings -> a convolution over three words -> the largest of each, without the padding -> classes."""
    make = onnx.helper.make_node
    nodes = [
        *convolved_words(),
        make("Cast", ["attention_mask"], ["m"], to=onnx.TensorProto.FLOAT),
        make("Unsqueeze", ["m", "one"], ["m1"]),
        make("Mul", ["r", "m1"], ["used"]),
        make("ReduceMax", ["used"], ["f"], axes=[2], keepdims=0),
        make("Gemm", ["f", "w", "b"], ["logits"]),
    ]
    tensors = {**text_net(words, classes), "one": np.array([1])}
    inputs = {"input_ids": ["N", "T"], "attention_mask": ["N", "T"]}
    save(path, nodes, inputs, {"logits": ["N", classes]}, tensors, whole=tuple(inputs))


def test_sentences_in_a_csv_with_a_tokenizer(capsys):
    """The peer: the same network and numbers in PyTorch (peers.py). The floor is two points below it, and 0.95."""
    Path("hub/onnx").mkdir(parents=True)
    tokenizer("hub/tokenizer.json", WORDS)
    classifier("hub/onnx/model.onnx", len(WORDS) + 4, 2)
    for name, count, seed in (("d.csv", 300, 1), ("test.csv", 200, 2)):
        write_csv(name, [{"text": t, "mood": m} for t, m in sentences(count, seed)])
    onnxgrad(
        "train hub/onnx/model.onnx --data d.csv --target mood -o out/t.onnx --epochs 8 --lr 0.01 --val 0 "
        "--batch-size 16"
    )
    said = " ".join(capsys.readouterr().out.split())
    assert "text: column 'text' becomes tokens by hub/tokenizer.json, at most 512 of a row" in said
    assert "out/tokenizer.json: a copy of the tokenizer" in said
    onnxgrad("eval out/t.onnx --data test.csv --target mood --json")  # by the copy beside it
    assert json.loads(capsys.readouterr().out)["accuracy"] >= max(0.95, peer("sentences") - 0.02)
    onnxgrad("predict out/t.onnx --data test.csv --target mood -o answers.csv")
    truth = [m for _, m in sentences(200, 2)]
    right = np.mean([r["class"] == t for r, t in zip(read_csv("answers.csv"), truth, strict=True)])
    assert right >= max(0.95, peer("sentences") - 0.02)


def tagger(path: str, words: int, classes: int, *, last: bool) -> None:
    """Embeddings -> a convolution over three words -> a class for each: [N, C, T], or [N, T, C] with `last`."""
    make = onnx.helper.make_node
    nodes = [
        *convolved_words(),
        make("Transpose", ["r"], ["rt"], perm=[0, 2, 1]),
        make("MatMul", ["rt", "w"], ["p"]),
        make("Add", ["p", "b"], ["logits" if last else "s"]),
    ]
    if not last:
        nodes.append(make("Transpose", ["s"], ["logits"], perm=[0, 2, 1]))
    shape = ["N", "T", classes] if last else ["N", classes, "T"]
    save(
        path,
        nodes,
        {"input_ids": ["N", "T"]},
        {"logits": shape},
        text_net(words, classes),
        ("input_ids",),
    )


def write_lines(path: str, records: list[dict]) -> None:
    Path(path).write_text("".join(json.dumps(r) + "\n" for r in records))


@pytest.mark.parametrize("last", [True, False], ids=["[N, T, C]", "[N, C, T]"])
def test_words_with_tags_and_a_tokenizer(last, capsys):
    """The peer: the same network and numbers in PyTorch (peers.py). The floor is two points below it, and 0.95."""
    tokenizer("tokenizer.json", TAG_WORDS)
    tagger("model.onnx", len(TAG_WORDS) + 4, len(TAGS), last=last)
    for name, count, seed in (("d.jsonl", 200, 1), ("test.jsonl", 100, 2)):
        write_lines(name, [{"words": w, "tags": t} for w, t in tagged_lines(count, seed)])
    onnxgrad(
        "train model.onnx --data d.jsonl -o t.onnx --epochs 6 --lr 0.02 --val 0 --batch-size 16"
    )
    assert "text: column 'words' becomes tokens by tokenizer.json" in " ".join(
        capsys.readouterr().out.split()
    )
    onnxgrad("eval t.onnx --data test.jsonl --json")
    floor = max(0.95, peer("tags") - 0.02)
    assert json.loads(capsys.readouterr().out)["accuracy"] >= floor
    onnxgrad("predict t.onnx --data test.jsonl -o answers.csv")
    answers = [r["tags"].split() for r in read_csv("answers.csv")]
    truth = [t for _, t in tagged_lines(100, 2)]
    assert [len(a) for a in answers] == [len(t) for t in truth]
    right = [a == t for x, y in zip(answers, truth, strict=True) for a, t in zip(x, y, strict=True)]
    assert np.mean(right) >= floor


@pytest.mark.parametrize("last", [True, False], ids=["[N, T, C]", "[N, C, T]"])
def test_tokens_of_unequal_lengths_without_a_tokenizer(last, capsys):
    """Tokens and labels are numbers already; -100 marks what has no label. The floor as above."""
    tagger("model.onnx", len(TAG_WORDS), len(TAGS), last=last)
    for name, count, seed in (("d.jsonl", 200, 1), ("test.jsonl", 100, 2)):
        write_lines(name, [
            {"input_ids": [TAG_WORDS.index(x) for x in w],
             "labels": [-100 if x == "we" else TAGS.index(y) for x, y in zip(w, t, strict=True)]}
            for w, t in tagged_lines(count, seed)
        ])  # fmt: skip
    onnxgrad(
        "train model.onnx --data d.jsonl -o t.onnx --epochs 6 --lr 0.02 --val 0 --batch-size 16"
    )
    assert "rows of unequal lengths" in " ".join(capsys.readouterr().out.split())
    onnxgrad("eval t.onnx --data test.jsonl --json")
    assert json.loads(capsys.readouterr().out)["accuracy"] >= max(0.95, peer("tags") - 0.02)
