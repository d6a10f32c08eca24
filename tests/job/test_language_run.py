"""Language data on the command line: from lines of JSON to an adapter, its perplexity, and the text it makes."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

pytest.importorskip("tokenizers")

from onnxgrad import Trainer
from onnxgrad.cli import main
from onnxgrad.demo import language
from onnxgrad.job.config import Config
from onnxgrad.job.language import LanguageJob, is_language_run

ANSWERS = {"what is blue? ": "the sky", "what is green? ": "grass", "what is white? ": "snow"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    language.write("base")
    pairs = [{"prompt": p, "completion": c} for p, c in ANSWERS.items()]
    chats = [
        {"messages": [{"role": "user", "content": p}, {"role": "assistant", "content": c}]}
        for p, c in ANSWERS.items()
    ]
    for name, rows in (("pairs", pairs), ("chats", chats), ("texts", [{"text": "abc def"}] * 3)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return tmp_path


def run(*words) -> int:
    return main([str(w) for w in words])


def test_from_lines_of_json_to_an_adapter_that_answers(folder, capsys):
    code = run(
        "train", "base/model.onnx", "--data", "pairs.jsonl", "--val", 0, "--epochs", 80, "--lr", 1e-2,
        "--lora", "r=8,targets=all-linear", "-o", "adapter",
    )  # fmt: skip
    printed = capsys.readouterr().out
    assert code == 0
    assert "3 examples, 19 tokens to learn" in printed
    assert "perplexity" in printed
    assert (folder / "adapter" / "tokenizer.json").exists(), "the folder can be used at once"
    assert run("predict", "adapter", "--data", "pairs.jsonl", "-o", "said.jsonl") == 0
    said = [json.loads(line) for line in (folder / "said.jsonl").read_text().splitlines()]
    assert {r["prompt"]: r["completion"] for r in said} == ANSWERS
    assert run("predict", "adapter", "--prompt", "what is blue? ") == 0
    assert "→ the sky" in capsys.readouterr().out


def test_all_three_forms_train_and_are_evaluated(folder, capsys):
    for name in ("pairs", "chats", "texts"):
        assert run(
            "train", "base/model.onnx", "--data", f"{name}.jsonl", "--val", 0.34, "--epochs", 2, "-o", "t.onnx"
        ) == 0  # fmt: skip
        capsys.readouterr()
        assert run("eval", "base/model.onnx", "--data", f"{name}.jsonl", "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert math.isclose(found["perplexity"], math.exp(found["loss"]))


def test_perplexity_is_of_tokens_not_of_batches(folder):
    """Batches of one row of many and one of few tokens count by their tokens."""
    rows = [{"text": "a"}, {"text": "the grass is green and the sky is blue"}]
    (folder / "uneven.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    losses = [
        LanguageJob(
            "base/model.onnx",
            Config(
                data="uneven.jsonl", output="o.onnx", val="0", batch_size=size, run_dir=f"r{size}"
            ),
        ).trainer.evaluate(_batches("uneven.jsonl", size))["loss"]
        for size in (1, 2)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def _batches(path, size):
    from onnxgrad.job.language import Text

    config = Config(data=path, batch_size=size)
    text = Text.open("base/model.onnx", config)
    return text.batches(text.examples(path), config)


def test_packed_rows_are_full(folder, capsys):
    assert run(
        "train", "base/model.onnx", "--data", "texts.jsonl", "--val", 0, "--epochs", 1, "--pack",
        "--max-length", 8, "-o", "t.onnx",
    ) == 0  # fmt: skip
    assert "3 examples are packed into 3 rows" in capsys.readouterr().out


def test_a_table_with_a_text_and_a_label_is_no_language_data(folder):
    (folder / "labels.jsonl").write_text('{"text": "good", "label": 1}\n')
    assert not is_language_run("base/model.onnx", Config(data="labels.jsonl"))
    assert is_language_run("base/model.onnx", Config(data="texts.jsonl"))


WRONG = [
    (["--loss", "mse"], "--loss has no meaning for language data"),
    (["--folds", "3"], "--folds has no meaning for language data"),
    (["--val", "0.9"], "--val is 0.9, which leaves nothing of 3 examples to train on"),
    (["--tokenizer", "nothing.json"], "nothing.json: no such file"),
    (["--max-length", "1"], "length is 1, expected at least 2 tokens"),
    (["--lora", "r=0"], "r is 0, expected a rank of at least 1"),
    (["--lora", "targets=q_prj"], "the target 'q_prj' matches none of the model's 15 layers"),
]


@pytest.mark.parametrize(("more", "message"), WRONG, ids=[" ".join(m) for m, _ in WRONG])
def test_what_cannot_be_is_said_in_one_sentence(folder, capsys, more, message):
    output = "a" if "--lora" in more else "t.onnx"
    code = run("train", "base/model.onnx", "--data", "pairs.jsonl", "-o", output, *more)
    assert code == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1
    assert not (folder / "runs").exists()


def test_a_tokenizer_of_another_model_is_refused(folder, capsys):
    words = json.loads((folder / "base" / "tokenizer.json").read_text())
    words["model"]["vocab"].update({f"word{i}": 46 + i for i in range(9)})
    (folder / "other.json").write_text(json.dumps(words))
    code = run(
        "train",
        "base/model.onnx",
        "--data",
        "pairs.jsonl",
        "--tokenizer",
        "other.json",
        "-o",
        "t.onnx",
    )
    assert code == 2
    assert "the tokenizer belongs to another model" in capsys.readouterr().err


def test_without_a_tokenizer_one_is_asked_for(folder, capsys):
    (folder / "base" / "tokenizer.json").unlink()
    assert run("train", "base/model.onnx", "--data", "pairs.jsonl", "-o", "t.onnx") == 2
    assert "name one with --tokenizer" in capsys.readouterr().err


def test_an_interrupted_run_goes_on_to_the_same_bits(folder):
    config = Config(
        data="pairs.jsonl", output="whole.onnx", val="0", epochs=6, batch_size=2, run_dir="whole"
    )
    whole = LanguageJob("base/model.onnx", config)
    whole.start()
    half = Config(
        data="pairs.jsonl", output="half.onnx", val="0", epochs=3, batch_size=2, run_dir="half"
    )
    LanguageJob("base/model.onnx", half).start()
    half.epochs = 6
    again = LanguageJob("base/model.onnx", half, folder / "half")
    again.start()
    for name, array in whole.trainer.get_weights().items():
        assert np.array_equal(array, again.trainer.get_weights()[name]), name
    assert isinstance(again.trainer, Trainer)
