from reference.lstm_training import lstm_training

from cases.recurrent import Family

LSTM = Family(
    op="lstm",
    gates=4,
    standard=("Sigmoid", "Tanh", "Tanh"),
    flag="input_forget",
    states=("H0", "C0"),
    peepholes=True,
    forward=lstm_training,
    kept=("HAll", "CAll", "IOFC"),
    outputs=("HAll", "Ht", "Ct", "CAll", "IOFC"),
    gradients=("dX", "dW", "dR", "dB", "dH0", "dC0", "dP"),
)
