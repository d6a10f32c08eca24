"""Text as tokens: templates, pairs, parts of words, tags, masks, widths; mistakes named by their line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from job.problem import run

from onnxgrad.data.goals import Goal
from onnxgrad.data.ragged import Ragged, by_length, role_of
from onnxgrad.data.read import read
from onnxgrad.data.texts import TagGoal, TextFeed, Texts
from onnxgrad.data.tokenizer import Tokenizer, length_beside, tokenizer_beside
from onnxgrad.errors import DataError

tokenizers = pytest.importorskip("tokenizers")
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "dog", "sat", "play", "##ing", "##ed"]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write_tokenizer(path: str = "tokenizer.json") -> None:
    """Parts of words: playing is play and ##ing."""
    vocabulary = {word: i for i, word in enumerate(VOCABULARY)}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )  # fmt: skip
    made.enable_padding(length=32)
    made.save(path)


def texts(columns: list[str], length: int = 64, fixed: int | None = None) -> Texts:
    write_tokenizer()
    return Texts(Tokenizer("tokenizer.json"), columns, length, fixed)


def named(ids: np.ndarray) -> str:
    return " ".join(VOCABULARY[i] for i in ids)


def feed(made: Texts, role: str, **arrays) -> np.ndarray:
    arrays = {n: np.array(a) for n, a in arrays.items()}
    return TextFeed(made.columns, made, role, np.dtype(np.int64))(arrays)


def test_a_batch_is_as_wide_as_its_longest_text():
    made = texts(["t"])
    ids = feed(made, "ids", t=["a cat", "a cat sat playing a cat"])
    assert ids.shape == (2, 16)  # 9 tokens, a multiple of 8
    assert named(ids[0]) == "[CLS] a cat [SEP]" + " [PAD]" * 12
    np.testing.assert_array_equal(feed(made, "mask", t=["a cat"]), [[1] * 4 + [0] * 4])
    np.testing.assert_array_equal(feed(made, "positions", t=["a cat"]), [range(8)])


def test_a_pair_of_texts():
    made = texts(["q", "r"])
    arrays = dict(q=["a cat"], r=["sat"])
    assert named(feed(made, "ids", **arrays)[0]) == "[CLS] a cat [SEP] sat [SEP] [PAD] [PAD]"
    np.testing.assert_array_equal(feed(made, "types", **arrays), [[0, 0, 0, 0, 1, 1, 0, 0]])


def test_long_texts_are_cut_at_the_length_and_at_the_model():
    assert (
        named(feed(texts(["t"], length=4), "ids", t=["a cat sat"])[0])[:19] == "[CLS] a cat [SEP] ["
    )
    assert feed(texts(["t"], fixed=5), "ids", t=["a cat sat playing"]).shape == (1, 5)


def words(*rows: list[str]) -> np.ndarray:
    made = np.empty(len(rows), object)
    made[:] = [np.array(r) for r in rows]
    return made


def tags(columns=("tags", "words")) -> TagGoal:
    plain = Goal("target", columns, True, False, np.dtype(np.float32), ["N", "V"])
    return TagGoal(**vars(plain), texts=texts(["words"]))


def test_the_first_part_of_a_word_has_its_tag():
    arrays = {"words": words(["cat", "playing"], ["sat"]), "tags": words(["N", "V"], ["V"])}
    found = tags()(arrays, np.arange(2), read_lines({"x": 1}))
    np.testing.assert_array_equal(
        found[0], [-100, 0, 1, -100, -100, -100, -100, -100]
    )  # ##ing has none
    np.testing.assert_array_equal(found[1], [-100, 1, *[-100] * 6])


def read_lines(*records: dict):
    Path("d.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return read("d.jsonl")


def test_a_word_without_a_tag_is_named_by_its_line():
    table = read_lines(
        {"words": ["cat", "sat"], "tags": ["N", "V"]}, {"words": ["cat"], "tags": ["N", "V"]}
    )
    arrays = {n: a[:] for n, a in table.arrays.items()}
    with pytest.raises(DataError, match=r"d.jsonl, line 2: 'tags' has 2 labels, and 'words' has 1"):
        tags()(arrays, np.arange(2), table)


def test_lists_of_unequal_lengths_are_a_column():
    table = read_lines({"ids": [1, 2, 3], "t": ["a"]}, {"ids": [4], "t": ["b", "a"]})
    assert isinstance(table.arrays["ids"], Ragged)
    assert list(table.words("t")) == ["a", "b"]
    for wrong, message in ((["x"], "lists of numbers in some lines and of text in others"), ([], "empty list"),
                           ([[1]], "has shape")):  # fmt: skip
        with pytest.raises(DataError, match=message):
            read_lines({"ids": [1, 2]}, {"ids": wrong})


def test_roles_by_names():
    names = [
        "input_ids",
        "attention_mask",
        "token_type_ids",
        "segment_ids",
        "position_ids",
        "input_word_ids",
    ]
    assert [role_of(n) for n in names] == ["ids", "mask", "types", "types", "positions", "ids"]
    np.testing.assert_array_equal(
        by_length("mask", [1, 3], 3, np.dtype(np.float32)), [[1, 0, 0], [1, 1, 1]]
    )


def changed(**words) -> Tokenizer:
    """The tokenizer with other words in its template of tokens."""
    write_tokenizer()
    whole = json.loads(Path("tokenizer.json").read_text())
    whole["post_processor"].update(words)
    Path("tokenizer.json").write_text(json.dumps(whole))
    return Tokenizer("tokenizer.json")


@pytest.mark.parametrize("length", [None, 1])
def test_what_a_tokenizer_of_a_stranger_does_is_a_sentence(length):
    """Rust panics where the template names a token that is not there: no Exception of Python."""
    with pytest.raises(DataError, match=r"tokenizer\.json is a tokenizer\.json that fails"):
        changed(special_tokens={}).whole(["a cat"], length)


def test_a_word_that_is_not_known_and_none_for_it():
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="[UNK]"))
    made.save("tokenizer.json")
    tokenizer = Tokenizer("tokenizer.json")
    with pytest.raises(DataError, match=r"tokenizer\.json that fails: .*\[UNK\]"):
        tokenizer.encode("b")


def test_a_tokenizer_lies_beside_a_model_or_above_its_folder():
    Path("hub/onnx").mkdir(parents=True)
    assert tokenizer_beside("hub/onnx/model.onnx") is None
    write_tokenizer("hub/tokenizer.json")
    assert tokenizer_beside("hub/onnx/model.onnx") == Path("hub/tokenizer.json")
    assert tokenizer_beside("model.onnx") is None
    for text, length in (
        ('{"model_max_length": 77}', 77),
        ('{"model_max_length": 1e30}', None),
        ("[", None),
    ):
        Path("hub/tokenizer_config.json").write_text(text)
        assert length_beside(Path("hub/tokenizer.json")) == length


# ---- the command


def write_model(
    path: str, inputs: str = "int64[N, T] input_ids, int64[N, T] attention_mask"
) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net ({inputs}) => (float[N, 2] y) <int64[1] one = {{1}}>
        {{ x = Gather(e, input_ids)  m = Cast<to: int = 1>(attention_mask)  u = Unsqueeze(m, two)
           used = Mul(x, u)  y = ReduceSum<keepdims: int = 0>(used, one) }}""")
    rng = np.random.default_rng(0)
    model.graph.initializer.extend([
        onnx.numpy_helper.from_array(rng.normal(size=(len(VOCABULARY), 2)).astype(np.float32), "e"),
        onnx.numpy_helper.from_array(np.array([2]), "two"),
    ])  # fmt: skip
    onnx.save(model, path)


def write_pairs() -> None:
    lines = ["question,answer,id,label"]
    lines += [
        f"a {w},{'sat' if n % 3 else 'playing'},{n},{w}" for n in range(6) for w in ("cat", "dog")
    ]
    Path("d.csv").write_text("\n".join(lines) + "\n")


def test_pairs_a_tokenizer_elsewhere_and_a_length(capsys):
    write_model("m.onnx")
    write_pairs()
    line = ["--data", "d.csv", "-o", "out/t.onnx", "--epochs", 8, "--lr", 0.1, "--batch-size", 4]
    code, _, err = run(capsys, "train", "m.onnx", *line)
    assert code == 2
    assert (
        "column 'question' of d.csv is text: name the model's tokenizer.json with --tokenizer"
        in " ".join(err.split())
    )
    Path("far").mkdir()
    write_tokenizer("far/tokenizer.json")
    more = ["--tokenizer", "far", "--text", "question,answer", "--max-length", 7]
    code, out, err = run(capsys, "train", "m.onnx", *line, *more)
    assert (code, err) == (0, "")
    said = " ".join(out.split())
    assert (
        "text: columns 'question' and 'answer' become tokens by far/tokenizer.json, at most 7"
        in said
    )
    code, out, _ = run(capsys, "eval", "out/t.onnx", "--data", "d.csv", "--json")
    assert json.loads(out)["accuracy"] == 1
    stored = {p.key: p.value for p in onnx.load("out/t.onnx").metadata_props}
    form = json.loads(stored["onnxgrad.inputs"])["texts"]
    assert form == {"tokenizer": "tokenizer.json", "length": 7, "columns": ["question", "answer"]}
    assert run(capsys, "predict", "out/t.onnx", "--data", "d.csv", "-o", "p.csv")[0] == 0
    assert [r.split(",")[0] for r in Path("p.csv").read_text().split()] == [
        "class",
        *["cat", "dog"] * 6,
    ]


def test_another_tokenizer_beside_the_output_is_left_alone(capsys):
    write_model("m.onnx")
    write_tokenizer()
    write_pairs()
    Path("out").mkdir()
    Path("out/tokenizer.json").write_text("{}")
    line = ["--data", "d.csv", "--text", "question", "-o", "out/t.onnx", "--epochs", 1]
    assert run(capsys, "train", "m.onnx", *line)[0] == 0
    assert Path("out/tokenizer.json").read_text() == "{}"
    assert Path("out/t.tokenizer.json").read_text() == Path("tokenizer.json").read_text()
    assert run(capsys, "eval", "out/t.onnx", "--data", "d.csv")[0] == 0


def test_a_model_does_not_name_a_tokenizer_elsewhere(capsys):
    write_model("m.onnx")
    write_pairs()
    model = onnx.load("m.onnx")
    text = json.dumps({"texts": {"tokenizer": "../../etc/passwd"}})
    onnx.helper.set_model_props(model, {"onnxgrad.inputs": text})
    onnx.save(model, "m.onnx")
    code, _, err = run(capsys, "eval", "m.onnx", "--data", "d.csv")
    assert code == 2
    assert "leads out of its folder" in err


def test_a_mask_follows_from_tokens_that_are_numbers(capsys):
    write_model("m.onnx")
    read_lines(*({"input_ids": [4, 5 + n % 2, *[7] * (n % 4)], "label": n % 2} for n in range(12)))
    code, out, err = run(
        capsys, "train", "m.onnx", "--data", "d.jsonl", "-o", "t.onnx", "--epochs", 8, "--lr", 0.1
    )
    assert (code, err) == (0, "")
    assert "input 'attention_mask': by the lengths of 'input_ids'" in " ".join(out.split())
    code, out, _ = run(capsys, "eval", "t.onnx", "--data", "d.jsonl", "--json")
    assert json.loads(out)["accuracy"] == 1


def test_classes_in_the_order_of_a_config_beside_the_model(capsys):
    """id2label, as hubs write it; where it lists others than the data have, it is left alone."""
    write_model("m.onnx")
    write_tokenizer()
    write_pairs()
    line = ["eval", "m.onnx", "--data", "d.csv", "--text", "question"]
    Path("config.json").write_text(json.dumps({"id2label": {"0": "dog", "1": "cat"}}))
    assert "numbered as in config.json beside the model of 2 classes" in " ".join(
        run(capsys, *line)[1].split()
    )
    first = run(capsys, *line, "--json")[1]
    for text in ('{"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}', "[", '{"id2label": 5}'):
        Path("config.json").write_text(text)
        assert "numbered in alphabetical order" in " ".join(run(capsys, *line)[1].split())
        assert run(capsys, *line, "--json")[1] != first


REFUSED = [
    ("--text nope", "--text: d.csv has no column 'nope'; it has question, answer, id, label"),
    ("--text question,answer,id", "--text names 3 columns, expected one, or two for a pair"),
    ("--tokenizer nope.json", "nope.json: no such file; a tokenizer.json lies beside most models"),
    ("--mean 0.5", "--mean is for pictures, and the data have none"),
    ("--sample-rate 8000", "--sample-rate is for sounds, and the data have none"),
    ("--augment flip", "--augment is for pictures, and the data have none"),
    (
        "--constant z=1",
        "--constant: the model has no input 'z'; its inputs are 'input_ids', 'attention_mask'",
    ),
    ("--constant z", "--constant is 'z', expected input=number"),
]


@pytest.mark.parametrize(("flags", "message"), REFUSED)
def test_flags_that_mean_nothing_here_are_refused(flags, message, capsys):
    write_model("m.onnx")
    write_tokenizer()
    write_pairs()
    line = ["train", "m.onnx", "--data", "d.csv", "-o", "t.onnx"]
    text = [] if "--text" in flags else ["--text", "question"]
    code, _, err = run(capsys, *line, *text, *flags.split())
    assert code == 2
    assert message in " ".join(err.split())
