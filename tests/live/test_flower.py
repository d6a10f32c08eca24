"""A real Flower run on the loopback address: a SuperLink, SuperNodes, the digits split by class.

pip install 'onnxgrad[flower]' cryptography; pytest -m live tests/live/test_flower.py
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxgrad
from onnxgrad.cli import main
from onnxgrad.demo import digits, models

pytestmark = pytest.mark.live
pytest.importorskip("flwr", reason="flwr is missing: pip install 'onnxgrad[flower]'")

TRAIN, SECONDS, ROUNDS = 1400, 600, 3
BIN = Path(sys.executable).parent


def split() -> tuple[dict[str, tuple], tuple[np.ndarray, np.ndarray]]:
    """One node has the digits 0 to 4, the other 5 to 9; the test rows have all."""
    x, y = digits.load()
    y = y.astype(np.int64)
    low = y[:TRAIN] < 5
    nodes = {"one": (x[:TRAIN][low], y[:TRAIN][low]), "two": (x[:TRAIN][~low], y[:TRAIN][~low])}
    return nodes, (x[TRAIN:], y[TRAIN:])


def accuracy(path: Path, x: np.ndarray, y: np.ndarray) -> float:
    session = onnxruntime.InferenceSession(str(path))
    return float((session.run(None, {"x": x})[0].argmax(1) == y).mean())


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


@contextmanager
def federation(folder: Path, data: list[Path]) -> Iterator[dict[str, str]]:
    """A SuperLink and a SuperNode for each file; yields the environment in which `flwr run` finds them."""
    home = folder / "home"
    home.mkdir()
    api, *nodes = free_ports(1 + len(data))
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{api}"\ninsecure = true\n'
    )
    environment = {
        **os.environ, "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1",
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }  # fmt: skip
    commands = [
        [BIN / "flower-superlink", "--insecure", "--port", str(api),
         "--disable-runtime-dependency-installation"],
        *([BIN / "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{api}", "--port", str(port),
           "--node-config", f'data="{file}"'] for port, file in zip(nodes, data, strict=True)),
    ]  # fmt: skip
    running = []
    try:
        for number, command in enumerate(commands):
            log = (folder / f"log-{number}.txt").open("w")
            running.append(
                subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
            time.sleep(4 if not number else 0.5)
        yield environment
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGTERM)
        for process in running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def flwr_run(project: Path, environment: dict[str, str], result: Path) -> None:
    done = subprocess.run(
        [BIN / "flwr", "run", project, "here", "--stream"], env=environment, cwd=project.parent,
        capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    said = done.stdout + done.stderr
    logs = "".join(p.read_text()[-3000:] for p in sorted(project.parent.glob("log-*.txt")))
    assert done.returncode == 0, said + logs
    deadline = time.monotonic() + 30
    while not result.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert result.exists(), said[-6000:] + logs


def project(folder: Path, server: str, client: str = "", settings: str = "") -> Path:
    """What `onnxgrad federated` writes, with another server app, words of the client app or settings."""
    models.write("cnn", folder / "m.onnx")
    made = folder / "digits"
    assert (
        main(["federated", str(folder / "m.onnx"), "-o", str(made), "--rounds", str(ROUNDS)]) == 0
    )
    text = (made / "pyproject.toml").read_text().replace("local-epochs = 1", "local-epochs = 2")
    (made / "pyproject.toml").write_text(text.replace("lr = 0.001", "lr = 0.003"))
    if server:
        (made / "digits" / "server_app.py").write_text(textwrap.dedent(server))
    if settings:
        package = made / "digits" / "__init__.py"
        package.write_text(
            package.read_text().replace('"cross_entropy"}', f'"cross_entropy", {settings}}}')
        )
    if client:
        app = made / "digits" / "client_app.py"
        app.write_text(app.read_text().replace("batch_size=32,", f"batch_size=32, {client},"))
    return made


WATCHED = """
    import json
    import numpy as np
    import onnxgrad.flower
    from flwr.app import ConfigRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedProx
    from digits import MODEL, SETTINGS

    app = ServerApp()
    differences, losses = [], []

    class Watched(FedProx):
        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            parts = [{n: a.numpy() for n, a in r.content["arrays"].items()} for r in replies]
            rows = np.array([r.content["metrics"]["num-examples"] for r in replies], float)
            losses.append([r.content["metrics"]["train_loss"] for r in replies])
            arrays, metrics = super().aggregate_train(server_round, replies)
            for name, array in arrays.items():
                mean = sum(w * p[name].astype(np.float64) for w, p in zip(rows / rows.sum(), parts))
                differences.append(float(np.abs(mean - array.numpy()).max()))
            return arrays, metrics

    @app.main()
    def main(grid, context):
        config = context.run_config
        start = onnxgrad.flower.initial_arrays(MODEL, **SETTINGS)
        sent = ConfigRecord({"lr": config["lr"], "local-epochs": config["local-epochs"]})
        strategy = Watched(proximal_mu=0.01)
        result = strategy.start(grid, start, num_rounds=config["num-server-rounds"], train_config=sent)
        onnxgrad.flower.save(MODEL, result.arrays, "@TUNED@", **SETTINGS)
        scores = {r: dict(m) for r, m in result.evaluate_metrics_clientapp.items()}
        found = {"far": max(differences), "losses": losses, "scores": scores, "sent": list(start)}
        json.dump(found, open("@JSON@", "w"))
    """


def run_of_two(folder: Path, settings: str) -> tuple[dict, Path]:
    """What the watched server saw, and the model it wrote."""
    nodes, _ = split()
    files = []
    for name, (a, b) in nodes.items():
        files.append(folder / f"{name}.npz")
        np.savez(files[-1], x=a, y=b)
    tuned, result = folder / "tuned.onnx", folder / "result.json"
    server = WATCHED.replace("@TUNED@", str(tuned)).replace("@JSON@", str(result))
    made = project(folder, server, settings=settings)
    with federation(folder, files) as environment:
        flwr_run(made, environment, result)
    return json.loads(result.read_text()), tuned


def test_three_rounds_of_two_nodes(tmp_path):
    """The average is NumPy's; the common model is better than that of either node alone. FedProx unchanged."""
    nodes, (x, y) = split()
    found, tuned = run_of_two(tmp_path, settings="")
    assert found["far"] < 1e-6
    assert len(found["losses"]) == ROUNDS
    assert "block0.norm.mean" in found["sent"]
    assert len(found["scores"]) == ROUNDS
    assert all(s["eval_loss"] > 0 for s in found["scores"].values())
    together = accuracy(tuned, x, y)
    alone = []
    for a, b in nodes.values():
        trainer = onnxgrad.Trainer(tmp_path / "m.onnx", loss="cross_entropy", lr=3e-3)
        trainer.fit(a, b, epochs=2 * ROUNDS)
        trainer.save(tmp_path / "alone.onnx")
        alone.append(accuracy(tmp_path / "alone.onnx", x, y))
    print(f"together {together:.4f}, alone {alone}, average off by {found['far']:.1e}")
    assert together > max(alone)


def test_with_lora_only_the_adapter_travels(tmp_path):
    """And the base of the written model is what it was, but for the products that the adapter is merged into."""
    found, tuned = run_of_two(tmp_path, '"lora": "r=4,targets=head*"')
    assert found["far"] < 1e-6
    assert found["sent"]
    assert all("lora" in name for name in found["sent"])
    before, after = (
        {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(p).graph.initializer}
        for p in (tmp_path / "m.onnx", tuned)
    )
    changed = {n for n in before if not np.array_equal(before[n], after[n])}
    assert changed == {"head.weight"}
    first, *_, last = (sum(round) for round in found["losses"])
    assert last < first


def test_statistics_stay_on_their_node(tmp_path):
    found, tuned = run_of_two(tmp_path, '"statistics": False')
    assert found["far"] < 1e-6
    assert "block0.norm.scale" in found["sent"]
    assert not any(name.endswith((".mean", ".var")) for name in found["sent"])
    kept = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(tuned).graph.initializer}
    assert not kept["block0.norm.mean"].any(), "those of the file"
    # A node evaluates with its own: it knows its five digits well by now.
    assert found["scores"][str(ROUNDS)]["eval_loss"] < 0.5


SECURE = """
    import json
    import onnxgrad.flower
    from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import LegacyContext, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
    from flwr.serverapp import ServerApp
    from digits import MODEL, SETTINGS

    app = ServerApp()

    @app.main()
    def main(grid, context):
        start = onnxgrad.flower.initial_arrays(MODEL, **SETTINGS)
        seen = []
        def look(round, parameters, config):
            seen.append(parameters)
            return 0.0, {}
        strategy = FedAvg(
            initial_parameters=ndarrays_to_parameters(start.to_numpy_ndarrays()), evaluate_fn=look,
            on_fit_config_fn=lambda r: {"lr": 0.003, "local-epochs": 2}, min_fit_clients=3, min_available_clients=3,
            fraction_evaluate=0.0,
        )
        legacy = LegacyContext(context=context, config=ServerConfig(num_rounds=3), strategy=strategy)
        secure = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2, max_weight=2000.0, clipping_range=16.0,
                                    quantization_range=2**22, modulus_range=2**32)
        DefaultWorkflow(fit_workflow=secure)(grid, legacy)
        from onnxgrad.flower.records import to_record
        arrays = to_record(dict(zip(list(start), seen[-1], strict=True)))
        onnxgrad.flower.save(MODEL, arrays, "@TUNED@", **SETTINGS)
        json.dump(len(seen), open("@JSON@", "w"))
    """


def test_secure_aggregation(tmp_path):
    """The server sees sums of masked integers only, and still gets a model that knows the digits."""
    x, y = digits.load()
    y = y.astype(np.int64)
    files = []
    for k in range(3):
        files.append(tmp_path / f"{k}.npz")
        np.savez(files[-1], x=x[k:TRAIN:3], y=y[k:TRAIN:3])
    tuned, result = tmp_path / "tuned.onnx", tmp_path / "result.json"
    server = SECURE.replace("@TUNED@", str(tuned)).replace("@JSON@", str(result))
    made = project(tmp_path, server, client="mods=[secaggplus_mod]")
    app = made / "digits" / "client_app.py"
    app.write_text(
        app.read_text().replace(
            "import numpy", "from flwr.client.mod import secaggplus_mod\nimport numpy"
        )
    )
    with federation(tmp_path, files) as environment:
        flwr_run(made, environment, result)
    assert json.loads(result.read_text()) == ROUNDS + 1
    found = accuracy(tuned, x[TRAIN:], y[TRAIN:])
    print(f"secure aggregation: {found:.4f}")
    assert found > 0.8


def test_a_project_stands_by_itself(tmp_path):
    made = project(tmp_path, "")
    source = (made / "digits" / "server_app.py").read_text()
    lines = [line for line in source.split("app = ServerApp()")[1].splitlines() if line.strip()]
    assert len(lines) <= 10
    shutil.rmtree(made)
