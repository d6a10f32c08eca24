"""Datasets, archives and checkpoints."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import struct
import zipfile
import zlib

import numpy as np
from attack_cases import case

from build import dataset, net, train, write


def trained_on(box, data: str) -> list[str]:
    return train(box, write(box, net()), data)


def archive(box, members: dict[str, bytes], name="d.npz", level=9) -> str:
    with zipfile.ZipFile(box / name, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as file:
        for member, content in members.items():
            file.writestr(member, content)
    return name


def npy(shape: tuple[int, ...], data: bytes, kind: str = "<f4") -> bytes:
    """An .npy file whose header says what one likes."""
    file = io.BytesIO()
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + data


@case("would unpack to")
def npz_bomb(box):
    """an .npz file of 1 MB that unpacks to 1 GB"""
    block = bytes(1 << 20)
    with zipfile.ZipFile(box / "d.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name in ("x", "y"):
            with file.open(f"{name}.npy", "w") as member:
                member.write(npy((1 << 27,), b""))
                for _ in range(512):
                    member.write(block)
    return trained_on(box, "d.npz")


@case("its header says")
def npz_header_that_lies(box):
    """an array of 10^12 numbers in 24 bytes"""
    return trained_on(box, archive(box, {"x.npy": npy((10**12,), bytes(24))}))


@case("Python objects, which are never loaded")
def pickled_member(box):
    """an .npz member that is a pickle"""
    np.savez(box / "d.npz", x=np.array([os.getcwd, None], dtype=object))
    return trained_on(box, "d.npz")


@case("Python objects, which are never loaded")
def pickled_array(box):
    """an .npy file that is a pickle"""
    np.save(box / "d.npy", np.array([os.getcwd, None], dtype=object))
    return trained_on(box, "d.npy")


@case("d.npz")
def climbing_member(box):
    """an .npz member named ../outside/x.npy"""
    members = {"../outside/x.npy": npy((2, 3), bytes(24)), "y.npy": npy((2, 2), bytes(16))}
    return trained_on(box, archive(box, members))


@case("not an .npz file")
def half_an_archive(box):
    """an .npz file that ends in the middle"""
    dataset(box)
    data = (box / "d.npz").read_bytes()
    (box / "d.npz").write_bytes(data[: len(data) // 2])
    return trained_on(box, "d.npz")


@case("1,000,000 columns")
def wide_csv(box):
    """a CSV file of 10^6 columns"""
    (box / "d.csv").write_text(",".join(f"c{i}" for i in range(1_000_000)) + "\n")
    return trained_on(box, "d.csv")


@case("not CSV text")
def endless_field(box):
    """a CSV field that never closes its quote"""
    (box / "d.csv").write_text('a,b\n1,"' + "2," * 1_000_000)
    return trained_on(box, "d.csv")


@case("nested deeper than 100 levels")
def deep_json(box):
    """a JSON line of 100,000 brackets"""
    (box / "d.jsonl").write_text('{"x": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    return trained_on(box, "d.jsonl")


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(bytes(1000))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


@case("pixel")
def picture_bomb(box):
    """a picture of 50,000 × 50,000 pixels in 100 bytes"""
    (box / "d" / "cat").mkdir(parents=True)
    (box / "d" / "cat" / "1.png").write_bytes(png(50_000, 50_000))
    return trained_on(box, "d")


@case("cannot be read as an image")
def half_a_picture(box):
    """a picture without its pixels"""
    (box / "d" / "cat").mkdir(parents=True)
    (box / "d" / "cat" / "1.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return trained_on(box, "d")


@case("is a pipe")
def pipe_as_data(box):
    """a pipe as the dataset"""
    os.mkfifo(box / "d.csv")
    return trained_on(box, "d.csv")


@case("is a device")
def device_as_data(box):
    """/dev/zero as the dataset"""
    (box / "d.csv").symlink_to("/dev/zero")
    return trained_on(box, "d.csv")


@case("two columns of the name 'a'")
def parquet_with_one_name_twice(box):
    """a Parquet file with two columns of one name"""
    import pyarrow
    from pyarrow import parquet

    columns = [pyarrow.array([1.0, 2.0]), pyarrow.array([3.0, 4.0])]
    parquet.write_table(pyarrow.table(columns, names=["a", "a"]), box / "d.parquet")
    return trained_on(box, "d.parquet")


@case("not a Parquet file")
def half_a_parquet_file(box):
    """Parquet's magic word and nothing else"""
    (box / "d.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    return trained_on(box, "d.parquet")


@case("expected")
def label_out_of_range(box):
    """a label that no class has"""
    x = np.zeros((12, 3), np.float32)
    np.savez(box / "d.npz", x=x, y=np.full(12, 10**9))
    command = trained_on(box, "d.npz")
    command[command.index("mse")] = "cross_entropy"
    return command


def run_folder(box, state: object = None) -> list[str]:
    """A run folder of a stranger."""
    write(box, net())
    dataset(box)
    folder = box / "run"
    (folder / "checkpoints" / "step-00000001").mkdir(parents=True)
    settings = {"model": "m.onnx", "data": "d.npz", "output": "out.onnx", "loss": "mse"}
    (folder / "args.json").write_text(json.dumps(settings if state is None else state))
    return ["train", "--resume", "run"]


@case("run")
def arguments_of_another_kind(box):
    """args.json is a list of lists"""
    return run_folder(box, [[1], [2]])


@case("run")
def arguments_nested(box):
    """args.json of 100,000 brackets"""
    command = run_folder(box)
    (box / "run" / "args.json").write_text("[" * 100_000)
    return command


@case("lies outside this folder")
def run_that_writes_outside(box):
    """a stranger's run folder that names a file outside as the output"""
    return run_folder(box, {"model": "m.onnx", "data": "d.npz", "output": "../outside/.bashrc"})


@case("is not called .onnx")
def run_that_writes_a_script(box):
    """a stranger's run folder that names a hidden file of the current folder as the output"""
    return run_folder(box, {"model": "m.onnx", "data": "d.npz", "output": ".profile"})


@case("link that leads out")
def run_with_checkpoints_elsewhere(box):
    """a stranger's run folder whose folder of checkpoints is a link to one outside"""
    command = run_folder(box)
    shutil.rmtree(box / "run" / "checkpoints")
    (box / "run" / "checkpoints").symlink_to(box.parent / "outside")
    return command


@case("scores.json is damaged")
def scores_of_another_kind(box):
    """scores.json of a trial is a list"""
    settings = {"model": "m.onnx", "data": "d.npz", "output": "out.onnx", "loss": "mse"}
    command = run_folder(box, {**settings, "folds": 2})
    for number in (1, 2):
        (box / "run" / f"fold-{number}").mkdir()
        (box / "run" / f"fold-{number}" / "scores.json").write_text("[1, 2]")
    return command


@case("nested deeper than can be followed")
def settings_nested(box):
    """--config of 20,000 brackets"""
    (box / "c.yaml").write_text("a: " + "[" * 20_000)
    return [*trained_on(box, dataset(box)), "--config", "c.yaml"]


@case("c.yaml")
def settings_bomb(box):
    """--config whose aliases stand for 9^9 words"""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for before, name in itertools.pairwise("abcdefghi"):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]")
    (box / "c.yaml").write_text("\n".join(lines))
    return [*trained_on(box, dataset(box)), "--config", "c.yaml"]


@case("c.yaml is not YAML")
def settings_with_code(box):
    """--config that asks for a call of os.system"""
    (box / "c.yaml").write_text('lr: !!python/object/apply:os.system ["touch ../outside/evil"]')
    return [*trained_on(box, dataset(box)), "--config", "c.yaml"]


@case("step-00000001")
def damaged_state(box):
    """trainer_state.json with numbers in the place of everything"""
    command = run_folder(box)
    state = {"format": 1, "files": 5, "step": "x", "model": []}
    path = box / "run" / "checkpoints" / "step-00000001"
    (path / "trainer_state.json").write_text(json.dumps(state))
    return command


@case("damaged")
def wild_flatbuffer(box):
    """a checkpoint of onnxruntime-training with offsets into nowhere"""
    (box / "checkpoint").write_bytes(b"\xff\xff\xff\x7fODTC" + bytes(range(200)))
    return ["convert-checkpoint", "checkpoint", "-o", "out.safetensors"]


@case("not a .safetensors file")
def safetensors_overlap(box):
    """two tensors that share their bytes, and a header of 2^60"""
    spans = {n: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for n in "ab"}
    header = json.dumps(spans).encode()
    (box / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    return ["convert-checkpoint", "w.safetensors", "-o", "out.npz"]


@case("not a .safetensors file")
def safetensors_header(box):
    """a safetensors header of 2^60 bytes"""
    (box / "w.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + bytes(64))
    return ["convert-checkpoint", "w.safetensors", "-o", "out.npz"]
