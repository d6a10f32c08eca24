"""In the old package's environment: continue training from checkpoints; print the losses of each as JSON.

    python old_program.py continue_old.py jobs.json

A job is a dict of training_model, checkpoint, optimizer_model, batches, rate, first and last step.
"""

import json
import sys

import numpy as np
from onnxruntime.training.api import CheckpointState, Module, Optimizer


def losses(job):
    state = CheckpointState.load_checkpoint(job["checkpoint"])
    module = Module(job["training_model"], state)
    optimizer = Optimizer(job["optimizer_model"], module)
    optimizer.set_learning_rate(job["rate"])
    data = np.load(job["batches"])
    count = len(data.files) // 2
    found = []
    for step in range(job["first"], job["last"]):
        found.append(float(module(data[f"x{step % count}"], data[f"y{step % count}"])))
        optimizer.step()
        module.lazy_reset_grad()
    return {"losses": found, "properties": dict(state.properties)}


with open(sys.argv[1]) as file:
    jobs = json.load(file)
print("RESULT" + json.dumps([losses(job) for job in jobs]))
