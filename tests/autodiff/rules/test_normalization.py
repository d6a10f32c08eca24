"""Normalisations."""

import numpy as np
from autodiff.harness import RuleCase, check, distinct, normal, positive, table

CASES = [
    RuleCase("BatchNormalization", "inference: the statistics are inputs", X=normal(2, 3, 4),
         scale=normal(3), B=normal(3, seed=1), input_mean=normal(3, seed=2), input_var=positive(3)),
    RuleCase("BatchNormalization", "training: the statistics come from X", X=normal(4, 3, 2, 2),
         scale=normal(3), B=normal(3, seed=1), input_mean=normal(3, seed=2), input_var=positive(3),
         training_mode=1, momentum=0.7, outputs=3),
    RuleCase("BatchNormalization", "rank 2", X=normal(5, 3), scale=normal(3), B=normal(3, seed=1),
         input_mean=normal(3, seed=2), input_var=positive(3), epsilon=0.1),
    RuleCase("LayerNormalization", "last axis", X=normal(2, 3, 4), Scale=normal(4),
         B=normal(4, seed=1)),
    RuleCase("LayerNormalization", "without bias", X=normal(2, 3, 4), Scale=normal(4), epsilon=0.01),
    RuleCase("LayerNormalization", "from axis 1", X=normal(2, 3, 4), Scale=normal(3, 4),
         B=normal(3, 4, seed=1), axis=1),
    RuleCase("LayerNormalization", "all three outputs", X=normal(2, 3, 4), Scale=normal(4),
         B=normal(4, seed=1), outputs=3, dtype=np.float32, rtol=1e-3,
         why="ONNX keeps Mean and InvStdDev in float32"),
    RuleCase("RMSNormalization", "last axis", X=normal(2, 3, 4), scale=normal(4), opsets=(23,)),
    RuleCase("RMSNormalization", "from axis 1", X=normal(2, 3, 4), scale=normal(3, 4), axis=1,
         epsilon=0.1, opsets=(23,)),
    RuleCase("InstanceNormalization", "2-D", input=normal(2, 3, 4, 5), scale=normal(3),
         B=normal(3, seed=1)),
    RuleCase("GroupNormalization", "scale per group", X=normal(2, 6, 3), scale=normal(2),
         bias=normal(2, seed=1), num_groups=2, opsets=(18,)),
    RuleCase("GroupNormalization", "scale per channel", X=normal(2, 6, 3, 2), scale=normal(6),
         bias=normal(6, seed=1), num_groups=3, opsets=(21,)),
    RuleCase("LpNormalization", "L2", input=normal(3, 4), axis=1),
    RuleCase("LpNormalization", "L1", input=distinct(3, 4), axis=0, p=1),
    RuleCase("MeanVarianceNormalization", "default axes", X=normal(2, 3, 4, 5)),
]  # fmt: skip


@table(CASES)
def test_standard(case, opset, shapes):
    check(case, opset, shapes, "standard")
