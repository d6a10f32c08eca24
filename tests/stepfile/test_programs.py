"""The programs of `onnxgrad step --emit`: built and run where their tools are installed, all to the same parameters.

They take rows in one order, so a Python loop over the same files is their reference. npm packages are looked for in
ONNXGRAD_NODE_MODULES (`make check` installs them), the jar of Java in ONNXGRAD_JAR.
"""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from safetensors.numpy import load_file, save_file

import onnxgrad
from onnxgrad.demo import digits, models
from onnxgrad.stepfile import merge, write_step
from onnxgrad.stepfile.graph import new_name

ROWS, EPOCHS, BATCH, LR = 600, 3, 32, 3e-3
LIBRARIES = sorted((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
MODULES = Path(os.environ.get("ONNXGRAD_NODE_MODULES", "/nowhere"))
JAR = os.environ.get("ONNXGRAD_JAR")  # onnxruntime for Java, with its libraries inside
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
SECONDS = 240

needs_library = pytest.mark.skipif(
    not LIBRARIES,
    reason="this onnxruntime has no libonnxruntime.so beside it (from 1.28 on it has)",
)
needs_cxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is missing")


def lehmer(count: int, epoch: int) -> list[int]:
    """The order in which the programs take the rows."""
    rows, random = list(range(count)), epoch + 1
    for i in range(count - 1, 0, -1):
        random = random * 48271 % 2147483647
        j = random % (i + 1)
        rows[i], rows[j] = rows[j], rows[i]
    return rows


def data() -> tuple[np.ndarray, np.ndarray]:
    x, y = digits.load()
    return x[:ROWS], y[:ROWS].astype(np.int64)


@pytest.fixture(scope="module")
def reference() -> dict[str, np.ndarray]:
    """The parameters after training in Python with the step file, checked against Trainer."""
    x, y = data()
    trainer = onnxgrad.Trainer(models.cnn(), "cross_entropy", lr=LR)
    for epoch in range(EPOCHS):
        order = lehmer(ROWS, epoch)
        for start in range(0, ROWS, BATCH):
            rows = order[start : start + BATCH]
            trainer.step(x[rows], y[rows])
    return trainer.get_weights()


def emitted(folder: Path, language: str, **more) -> Path:
    models.write("cnn", folder / "m.onnx")
    (folder / "data").mkdir()
    x, y = data()
    np.save(folder / "data" / "x.npy", x)
    np.save(folder / "data" / "target.npy", y)
    files = write_step(
        folder / "m.onnx", folder / "step.onnx", loss="cross_entropy", lr=LR, emit=language, **more
    )
    return files.program


def run(folder: Path, *command: object) -> str:
    done = subprocess.run(
        [str(c) for c in command], cwd=folder, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_trained(folder: Path, reference: dict, tolerance: float = 2e-4) -> None:
    """The same parameters up to rounding, hence the same answers; and `merge` puts them into the model."""
    found = load_file(folder / "step.trained.safetensors")
    assert found.keys() == reference.keys()
    for name, array in reference.items():
        np.testing.assert_allclose(found[name], array, atol=tolerance, err_msg=name)
    merge(folder / "m.onnx", folder / "step.trained.safetensors", folder / "tuned.onnx")
    x, y = digits.load()
    save_file(reference, folder / "reference.safetensors")
    merge(folder / "m.onnx", folder / "reference.safetensors", folder / "reference.onnx")
    ours, theirs = (answers(folder / name, x[ROWS:]) for name in ("tuned.onnx", "reference.onnx"))
    assert (ours == y[ROWS:]).mean() > 0.85
    assert (ours == theirs).mean() > 0.995


def answers(path: Path, x: np.ndarray) -> np.ndarray:
    return onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0].argmax(1)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The program of C++, which is the same text for the step with our operators."""
    folder = tmp_path_factory.mktemp("built")
    program = emitted(folder, "cpp")
    warnings = ["-Wall", "-Wextra", "-Werror"]
    run(folder, "g++", "-O0", "-std=c++17", *warnings, "-I.", program.name, "-o", "train", "-ldl")
    return folder / "train"


@needs_cxx
@needs_library
def test_cpp_trains_goes_on_and_exports(reference, built, tmp_path):
    """One epoch, then a second run that finds the checkpoint: the same bytes as two epochs at once."""
    emitted(tmp_path, "cpp")
    out = run(tmp_path, built, LIBRARIES[0], "data", 1, BATCH)
    assert "epoch 1/1  loss" in out
    out = run(tmp_path, built, LIBRARIES[0], "data", EPOCHS, BATCH)
    assert "goes on after step 19" in out
    assert_trained(tmp_path, reference)
    parts = (tmp_path / "step.trained.safetensors").read_bytes()
    (tmp_path / "step.checkpoint.safetensors").unlink()
    run(tmp_path, built, LIBRARIES[0], "data", EPOCHS, BATCH)
    assert (tmp_path / "step.trained.safetensors").read_bytes() == parts
    session = onnxruntime.InferenceSession(str(tmp_path / "step.tuned.onnx"))
    assert [i.name for i in session.get_inputs()] == ["x"]
    x, _ = digits.load()
    expected = onnxruntime.InferenceSession(str(tmp_path / "tuned.onnx")).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, atol=1e-5)


@needs_cxx
@needs_library
def test_cpp_with_our_operators(reference, built, tmp_path):
    emitted(tmp_path, "cpp", fused=True)
    run(tmp_path, built, LIBRARIES[0], "data", EPOCHS, BATCH, onnxgrad.library_path())
    assert_trained(tmp_path, reference)


C_PROGRAM = r"""
#include "onnxgrad/step.h"
static float largest;
static void look(const onnxgrad_array *output, void *you) {
  (void)you;
  largest = ((float *)output->data)[0];
  printf("%s has %d rows\n", output->name, (int)output->dims[0]);
}
int main(int argc, char **argv) {
  float x[4 * 64];
  int64_t y[4] = {1, 2, 3, 4};
  for (int i = 0; i < 256; ++i) x[i] = (float)(i % 7) / 7;
  onnxgrad_array batch[2] = {{"x", ONNXGRAD_FLOAT, x, 4, {4, 1, 8, 8}}, {"target", ONNXGRAD_INT64, y, 1, {4}}};
  onnxgrad_step *step = onnxgrad_step_open(argv[1], argv[2], NULL, 1);
  if (*onnxgrad_step_error(step)) return fprintf(stderr, "%s\n", onnxgrad_step_error(step)), 1;
  float first = onnxgrad_step_train(step, batch, 2, 0.01f), loss = first;
  if (onnxgrad_step_save(step, "c.safetensors")) return 2;
  for (int i = 0; i < 20; ++i) loss = onnxgrad_step_train(step, batch, 2, 0.01f);
  if (!(loss < first)) return 3;
  onnxgrad_step_evaluate(step, batch, 1, look, NULL);
  float after = largest;
  if (onnxgrad_step_load(step, "c.safetensors") || step->done != 1) return 4;
  float again = 0;
  for (int i = 0; i < 20; ++i) again = onnxgrad_step_train(step, batch, 2, 0.01f);
  if (again != loss) return 5; /* the same bits */
  onnxgrad_step_evaluate(step, batch, 1, look, NULL);
  if (largest != after) return 6;
  if (!isnan(onnxgrad_step_train(step, batch, 1, 0.01f))) return 7;
  printf("%s\n", onnxgrad_step_error(step));
  if (!onnxgrad_step_load(step, "missing.safetensors")) return 8;
  if (onnxgrad_step_export(step, "c.onnx")) return 9;
  onnxgrad_step_close(step);
  return argc == 3 ? 0 : 10;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing")
@needs_library
def test_the_header_is_c(tmp_path):
    """Train, checkpoint, go on to the same bits, evaluate, export; a wrong call is a sentence."""
    emitted(tmp_path, "cpp")
    (tmp_path / "c.c").write_text(C_PROGRAM)
    checks = ["-fsanitize=address,undefined"] if os.environ.get("ONNXGRAD_KILLS") else []
    run(
        tmp_path,
        "gcc",
        "-std=gnu99",
        "-Wall",
        "-Wextra",
        "-Werror",
        *checks,
        "-I.",
        "c.c",
        "-o",
        "c",
        "-ldl",
        "-lm",
    )
    out = run(tmp_path, "./c", LIBRARIES[0], "step")
    assert "target: no array of this name was given" in out
    assert onnxruntime.InferenceSession(str(tmp_path / "c.onnx")).get_inputs()[0].name == "x"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is missing")
@pytest.mark.skipif(
    not (MODULES / "onnxruntime-node").exists(),
    reason="npm install --ignore-scripts onnxruntime-node, and name its node_modules in ONNXGRAD_NODE_MODULES",
)
def test_node(reference, tmp_path):
    program = emitted(tmp_path, "js")
    (tmp_path / "node_modules").symlink_to(MODULES)
    run(tmp_path, "node", program.name, "data", EPOCHS, BATCH)
    assert_trained(tmp_path, reference)


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder on the loopback address, and keeps what is put."""

    def __init__(self, folder: Path):
        self.put, self.arrived = b"", threading.Event()

        class Handler(http.server.SimpleHTTPRequestHandler):
            extensions_map = {  # noqa: RUF012
                ".mjs": "text/javascript", ".wasm": "application/wasm", ".html": "text/html",
                "": "application/octet-stream",
            }  # fmt: skip

            def __init__(self, *arguments):
                super().__init__(*arguments, directory=str(folder))

            def log_message(self, *_):
                pass

            def do_PUT(self):
                self.server.put = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.end_headers()
                self.server.arrived.set()

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing")
@pytest.mark.skipif(
    not (MODULES / "onnxruntime-web").exists(),
    reason="npm install onnxruntime-web, and name its node_modules in ONNXGRAD_NODE_MODULES",
)
def test_a_browser(reference, tmp_path):
    program = emitted(tmp_path, "web")
    (tmp_path / "ort").symlink_to(MODULES / "onnxruntime-web" / "dist")
    server = Server(tmp_path)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = f"http://127.0.0.1:{server.server_port}/{program.name}?epochs={EPOCHS}&batch={BATCH}&put=/result"
    browser = subprocess.Popen(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", page],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert server.arrived.wait(SECONDS), "the page has not answered"
    finally:
        browser.kill()
        browser.wait()
        server.shutdown()
    assert not server.put.startswith(b"failed"), server.put
    (tmp_path / "step.trained.safetensors").write_bytes(server.put)
    assert_trained(tmp_path, reference)


# The signatures of ai.onnxruntime that the program uses.
JAVA_STUBS = {
    "OnnxJavaType": "public enum OnnxJavaType { FLOAT, DOUBLE, INT32, INT64, UINT8, BOOL; public final int size = 4; }",
    "OrtException": "public class OrtException extends Exception {}",
    "OnnxValue": "public interface OnnxValue extends AutoCloseable {}",
    "TensorInfo": """public class TensorInfo {
        public final OnnxJavaType type = null;
        public long[] getShape() { return null; } }""",
    "OnnxTensor": """public class OnnxTensor implements OnnxValue {
        public static OnnxTensor createTensor(OrtEnvironment e, java.nio.ByteBuffer b, long[] s, OnnxJavaType t)
            throws OrtException { return null; }
        public static OnnxTensor createTensor(OrtEnvironment e, java.nio.FloatBuffer b, long[] s)
            throws OrtException { return null; }
        public static OnnxTensor createTensor(OrtEnvironment e, java.nio.LongBuffer b, long[] s)
            throws OrtException { return null; }
        public java.nio.ByteBuffer getByteBuffer() { return null; }
        public java.nio.FloatBuffer getFloatBuffer() { return null; }
        public TensorInfo getInfo() { return null; }
        public void close() {} }""",
    "OrtEnvironment": """public class OrtEnvironment {
        public static OrtEnvironment getEnvironment() { return null; }
        public OrtSession createSession(String path) throws OrtException { return null; } }""",
    "OrtSession": """public class OrtSession implements AutoCloseable {
        public Result run(java.util.Map<String, ? extends OnnxTensor> feeds) throws OrtException { return null; }
        public void close() throws OrtException {}
        public static class Result implements AutoCloseable {
            public java.util.Optional<OnnxValue> get(String name) { return null; }
            public void close() {} } }""",
}


@pytest.mark.skipif(shutil.which("javac") is None, reason="javac is missing")
def test_java_compiles(tmp_path):
    """Against the signatures that it uses: Maven's onnxruntime is not here to run it."""
    program = emitted(tmp_path, "java")
    folder = tmp_path / "ai" / "onnxruntime"
    folder.mkdir(parents=True)
    for name, text in JAVA_STUBS.items():
        (folder / f"{name}.java").write_text(f"package ai.onnxruntime;\n{text}\n")
    run(
        tmp_path,
        "javac",
        "-Xlint:all,-try,-serial",
        "-Werror",
        "-d",
        "classes",
        "-cp",
        ".",
        program.name,
    )


@pytest.mark.skipif(
    JAR is None or shutil.which("java") is None,
    reason="the jar of com.microsoft.onnxruntime is missing: name it in ONNXGRAD_JAR",
)
def test_java_trains(reference, tmp_path):
    program = emitted(tmp_path, "java")
    run(tmp_path, "javac", "-Xlint:all", "-Werror", "-cp", JAR, program.name)
    run(tmp_path, "java", "-cp", f"{JAR}:.", program.stem, "data", EPOCHS, BATCH)
    assert_trained(tmp_path, reference)


@pytest.mark.skipif(
    shutil.which("dotnet") is None, reason="dotnet is missing: C# is not compiled here"
)
def test_csharp_trains(reference, tmp_path):
    program = emitted(tmp_path, "csharp")
    run(tmp_path, "dotnet", "new", "console", "-o", "train")
    run(tmp_path / "train", "dotnet", "add", "package", "Microsoft.ML.OnnxRuntime")
    shutil.copy(program, tmp_path / "train" / "Program.cs")
    run(tmp_path, "dotnet", "run", "--project", "train", "--", "data", EPOCHS, BATCH)
    assert_trained(tmp_path, reference)


def test_csharp_has_no_open_places(tmp_path):
    text = emitted(tmp_path, "csharp").read_text()
    for mark in ("@STEM@", "@NAMES@", "@TRAINED@", "@STATE@", "@DROPOUT@", "@LOSS@", "@LR@"):
        assert mark not in text
    assert '"x", "target"' in text
    assert new_name("x") == "new.x"  # the prefix that the programs write out
    assert '"new." + name' in text


def test_an_unknown_language_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match="emit is 'cobol', expected one of js, web, cpp, java, csharp"
    ):
        emitted(tmp_path, "cobol")
