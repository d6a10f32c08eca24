from reference.gru_training import gru_training

from cases.recurrent import Family

GRU = Family(
    op="gru",
    gates=3,
    standard=("Sigmoid", "Tanh"),
    flag="linear_before_reset",
    states=("H0",),
    peepholes=False,
    forward=gru_training,
    kept=("HAll", "ZRH"),
    outputs=("HAll", "Ht", "ZRH"),
    gradients=("dX", "dW", "dR", "dB", "dH0"),
)
