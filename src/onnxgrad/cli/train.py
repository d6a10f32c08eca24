"""`onnxgrad train model.onnx --data d.npz -o tuned.onnx`: the main job."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from onnxgrad.cli.exit_codes import INTERRUPTED, OK
from onnxgrad.cli.launcher import launched, together
from onnxgrad.cli.texts import Console, Unbroken, say_json, show_notes
from onnxgrad.errors import CheckpointError, ConfigError, ExportError, ParallelError
from onnxgrad.job.config import add_flags, dump, gather
from onnxgrad.texts import short


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "train",
        help="train a model on a dataset and write the tuned model",
        description="Exit codes: 0 ok, 2 wrong arguments or data, 3 an operator without a gradient, 4 diverged, "
        "130 interrupted with a checkpoint saved.",
    )
    parser.add_argument("model", nargs="?", help="an ONNX file; not needed with --resume")
    add_flags(parser)
    parser.add_argument(
        "--config", metavar="FILE.yaml", help="settings from a file; flags win over it"
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print the settings as YAML and do nothing else"
    )
    parser.add_argument(
        "--resume", metavar="RUN_FOLDER", help="continue an interrupted run, to the same bits"
    )
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    return parser


def run(options: argparse.Namespace) -> int:
    output = sys.stdout
    sys.stdout = Unbroken(output)  # `train … | head -1` trains to the end
    terminate = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    interrupt = signal.getsignal(signal.SIGINT)
    # A shell has it ignored for what runs in the background; SIGTERM would be, too
    if interrupt is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return together(options, started) if launched() else started(options)
    except KeyboardInterrupt:
        again = f"onnxgrad train --resume {shlex.quote(options.resume)}" if options.resume else ""
        text = f"Continue with:\n  {again}" if again else "Start it again with the same command"
        print(f"\ninterrupted before training began; nothing was changed. {text}")
        return INTERRUPTED
    finally:
        sys.stdout = output
        signal.signal(signal.SIGTERM, terminate)
        signal.signal(signal.SIGINT, interrupt)


def started(options: argparse.Namespace, communicator=None) -> int:
    """Gather the settings and train."""
    from onnxgrad.job.folder import check_saved, saved_arguments

    resume = Path(options.resume) if options.resume else None
    saved = saved_arguments(resume) if resume else {}
    model = options.model or saved.get("model")
    config = gather(options, {k: v for k, v in saved.items() if k != "model"})
    if options.print_config:
        print(dump(config), end="")
        return OK
    if not model:
        raise ConfigError("no model: name an ONNX file, or a run with --resume")
    if resume:
        said = {name for name in vars(config) if getattr(config, name) != saved.get(name)}
        check_saved(resume, config, {*vars(options), *said})
    return train(model, config, resume, communicator, quiet=options.quiet, as_json=options.json)


def train(
    model: str,
    config,
    resume: Path | None = None,
    communicator=None,
    *,
    quiet: bool = False,
    as_json: bool = False,
) -> int:
    """Run the job and show it; used by `demo` too."""
    from onnxgrad.cli.progress import screen
    from onnxgrad.files import hub
    from onnxgrad.job import trials
    from onnxgrad.job.card import upload
    from onnxgrad.job.language import LanguageJob, is_language_run
    from onnxgrad.job.run import TrainingJob

    console = Console(highlight=False, quiet=quiet or as_json)
    if config.push:
        hub.check_push(config.push)
    several = trials.wanted(config)
    language = is_language_run(model, config)
    several = several and not language
    if several and communicator is not None:
        raise ConfigError(
            "--folds and --repeat train in one process: start without mpiexec, or leave them out"
        )
    if several:
        job = trials.Trials(model, config, resume)
    else:
        kind = LanguageJob if language else TrainingJob
        job = kind(model, config, resume, communicator=communicator)
    show_notes(job.notes, console)
    shown = len(job.notes)
    if as_json:
        say_json("start", model=str(model), run=str(job.folder), notes=[str(n) for n in job.notes])
    mode = "quiet" if quiet else "json" if as_json else "live" if console.is_terminal else "plain"
    shown_by = screen(console, mode)
    try:
        result = run_trials(job, console, shown_by, as_json) if several else job.start(shown_by)
    except KeyboardInterrupt:
        return interrupted(job, as_json, quiet)
    except (CheckpointError, ExportError, ParallelError) as error:
        raise type(error)(f"{error}{way_on(job, error)}") from error
    if as_json:
        done = {"before": result.before, "after": result.after, "output": config.output}
        if result.trials:
            done["trials"] = {n: vars(s) for n, s in result.trials.items()}
        say_json("done", **done, run=str(job.folder), seconds=round(result.seconds, 3))
    show(result, console)
    show_notes(job.notes[shown:], console)
    if config.push:
        console.print(f"pushed  {escape(upload(result))}")
    return OK


def run_trials(job, console: Console, shown_by, as_json: bool):
    """Folds and seeds one after the other, a line each, then the training that writes the model."""
    found = []
    for number, (trial, scores) in enumerate(job.scores(), 1):
        found.append(scores)
        text = "  ".join(f"{name} {short(value)}" for name, value in scores.items())
        console.print(f"{trial.name} ({number}/{len(job.trials)})  {text}")
        if as_json:
            say_json("trial", name=trial.name, scores=scores)
    return job.last(found, shown_by)


def way_on(job, error: Exception) -> str:
    """What to do when a file could not be written: the training up to the last checkpoint is not lost."""
    if not job.checkpointed or (job.resume and isinstance(error, CheckpointError)):
        return ""
    from onnxgrad.job.folder import resume_line

    line = resume_line(job.folder, job.config)
    if isinstance(error, ExportError):
        line = f"onnxgrad train --resume {shlex.quote(str(job.folder))} -o OTHER.onnx"
    return f". The training so far is saved; continue with: {line}"


def interrupted(job, as_json: bool, quiet: bool = False) -> int:
    """Say how to go on."""
    from onnxgrad.job.folder import resume_line

    line = resume_line(job.folder, job.config)
    if as_json:
        say_json("interrupted", run=str(job.folder), resume=line)
    elif not quiet or job.speaks:
        state = "a checkpoint is saved" if job.checkpointed else "nothing has been trained yet"
        print(f"\ninterrupted; {state}. Continue with:\n  {line}")
    return INTERRUPTED


def show(result, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    for name, value in result.before.items():
        table.add_row(name, short(value), f"[bold]{short(result.after[name])}[/bold]")
    console.print()
    console.print(table)
    if result.trials:
        count = len(next(iter(result.trials.values())).values)
        console.print(f"\nover {count} trainings: mean ± deviation")
        for name, found in result.trials.items():
            console.print(f"  {name}  [bold]{found}[/bold]")
    if result.comparison is not None:
        show_comparison(result.comparison.rows(), console)
    stopped = f" ({escape(result.stop)})" if result.stop else ""
    console.print(f"\ntrained {result.seconds:.1f} s{stopped}")
    what = "adapter" if Path(result.config.output).is_dir() else "model  "
    console.print(f"{what} [bold]{escape(result.config.output)}[/bold]  (runs in any onnxruntime)")
    console.print(f"report  {escape(str(result.folder / 'report.html'))}")


def show_comparison(rows: list[list[str]], console: Console) -> None:
    """The float model beside the integer one, before and after its training."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for i, name in enumerate(rows[0]):
        table.add_column(name, justify="right" if i else "left")
    for row in rows[1:]:
        table.add_row(*row)
    console.print()
    console.print(table)
