"""The builder asks ONNX's schemas and our contracts about every node that it writes."""

import onnx_ir as ir
import pytest

from onnxgrad.contracts import contracts
from onnxgrad.errors import ContractError
from onnxgrad.graph import symbols
from onnxgrad.graph.builder import Builder

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def value(name, *shape, dtype=FLOAT):
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype))


def builder(opset=18, *inputs):
    graph = ir.Graph(list(inputs), [], nodes=[], name="g", opset_imports={"": opset})
    return Builder(ir.Model(graph, ir_version=9))


X = value("x", "N", 3)
REFUSED = [
    (lambda op: op.Reshpe(X, [3]), "neither ONNX nor onnxgrad has an operator 'Reshpe' (did you mean 'Reshape'?)"),
    (lambda op: op.ReluGrd(X, X), "did you mean 'ReluGrad'?"),
    (lambda op: op.Relugrad(X, X), "did you mean 'ReluGrad'?"),
    (lambda op: op.Reshape(X), "Reshape has 1 inputs, expected 2"),
    (lambda op: op.Reshape(X, [3], [3]), "Reshape has 3 inputs, expected 2"),
    (lambda op: op.Add(X), "Add has 1 inputs, expected 2"),
    (lambda op: op.Reshape(X, [3], allowzeros=1), "no attribute 'allowzeros' (did you mean 'allowzero'?)"),
    (lambda op: op.Exp(None), "Exp has 0 inputs, expected 1"),
    (lambda op: op.Where(None, X, X), "Where leaves out input 'condition', which it must have"),
    (lambda op: op.Gather(X, [0], axes=1), "did you mean 'axis'?"),
    (lambda op: op.Concat(X, X), "Concat lacks the attribute 'axis', which it must have"),
    (lambda op: op.Relu(X, outputs=2), "Relu has 1 outputs (Y), 2 were asked for"),
    (lambda op: op.GroupNormalization(X, X, X, num_groups=3), "in ONNX from opset 21 on, the model has 17"),
    (lambda op: op.ReluGrad(X), "ReluGrad has 1 inputs, expected 2"),
    (lambda op: op.ReluGrad(X, X, X), "ReluGrad has 3 inputs, expected 2"),
    (lambda op: op.LeakyReluGrad(X, X, alfa=1.0), "LeakyReluGrad has no attribute 'alfa' (did you mean 'alpha'?)"),
    (lambda op: op.ReluGrad(X, X, outputs=2), "ReluGrad has 1 outputs (dX), 2 were asked for"),
    (lambda op: op("ReluGrad", X, domain="com.microsoft"), "ReluGrad has 1 inputs, expected 2"),
    (lambda op: op.LayerNormalizationGrad(X, X, None, X, X), "leaves out input 'scale'"),
]  # fmt: skip


@pytest.mark.parametrize(("write", "text"), REFUSED, ids=[t for _, t in REFUSED])
def test_a_node_that_cannot_be_is_refused_at_once(write, text):
    with pytest.raises(ContractError) as error:
        write(builder(17))
    assert text in str(error.value)


def test_an_input_that_may_be_absent_may_be_so_before_one_that_may_not():
    x, w, r = value("x", 5, 2, 3), value("w", 1, 16, 3), value("r", 1, 16, 4)
    h, c, gates = value("h", 5, 1, 2, 4), value("c", 5, 1, 2, 4), value("i", 5, 1, 2, 16)
    op = builder(17, x, w, r, h, c, gates)
    op.LSTMGrad(x, w, r, None, None, None, h, c, gates, h, outputs=3)
    with pytest.raises(ContractError, match="leaves out input 'HAll', which it must have"):
        op.LSTMGrad(x, w, r, None, None, None, None, c, gates, h, outputs=3)


def test_the_sentence_for_an_unknown_operator_says_how_to_write_one_of_another_domain():
    with pytest.raises(ContractError) as error:
        builder().Frobnicate(X)
    assert str(error.value) == (
        "neither ONNX nor onnxgrad has an operator 'Frobnicate'; an operator of another domain is written with "
        'domain=, as in op("Frobnicate", ..., domain="my.domain")'
    )


def test_operators_of_other_domains_are_written_as_they_are_named():
    op = builder()
    own = op("Frobnicate", X, domain="my.domain", depth=3).producer()
    assert (own.domain, own.op_type, own.attributes["depth"].value) == (
        "my.domain",
        "Frobnicate",
        3,
    )
    rotary = op("RotaryEmbedding", X, X, X, X, domain="com.microsoft")  # onnxruntime's own
    assert rotary.producer().domain == "com.microsoft"


def test_a_rule_of_an_older_opset_may_use_its_words():
    """DFT has the axis as an attribute up to opset 19, and as an input from 20 on."""
    x = value("x", 2, 8, 1)
    assert builder(17).DFT(x, axis=1).producer().attributes["axis"].value == 1
    assert len(builder(20).DFT(x, None, 1).producer().inputs) == 3
    with pytest.raises(ContractError, match="DFT has no attribute 'axis'"):
        builder(20).DFT(x, axis=1)


def dims(result):
    return [d if isinstance(d, int) else d.value for d in result.shape]


IDS, ROWS, SEQUENCE = value("i", "K", dtype=INT64), value("d", "K", 3), value("s", "N", "S", 8)
GRU = value("X", 7, "N", 5), value("W", 1, 12, 5), value("R", 1, 12, 4)
PICTURE, TABLE = value("x", 1, 2, 8, 8), value("t", "A", "B")
TOLD = [
    ("same shape", lambda op: op.ReluGrad(X, X), FLOAT, ["N", 3]),
    ("a number beats a name", lambda op: op.ReluGrad(X, value("b", 2, 3)), FLOAT, [2, 3]),
    ("type and shape of others", lambda op: op.GatherGrad([5, 3], IDS, ROWS), FLOAT, [5, 3]),
    ("only the rank", lambda op: op.GatherGrad(op.Shape(TABLE), IDS, ROWS), FLOAT, [None, None]),
    (
        "bias",
        lambda op: op.BiasGeluGrad(SEQUENCE, SEQUENCE, value("b", 8), outputs=2)[1],
        FLOAT,
        [8],
    ),
    ("a multiple", lambda op: op.GRUTraining(*GRU, outputs=3)[2], FLOAT, [7, 1, "N", 12]),
    (
        "indices",
        lambda op: op.MaxPoolTraining(PICTURE, kernel_shape=[2, 2], outputs=2)[1],
        INT64,
        None,
    ),
    ("comparison", lambda op: op.Greater(X, 0), ir.DataType.BOOL, ["N", 3]),
    ("where", lambda op: op.Where(op.Greater(X, 0), X, 0.0), FLOAT, ["N", 3]),
    ("cast", lambda op: op.Cast(X, to=INT64), INT64, ["N", 3]),
    ("reduced", lambda op: op.ReduceSum(X, [1], keepdims=0), FLOAT, ["N"]),
    ("top k", lambda op: op.TopK(X, [2], outputs=2)[1], INT64, ["N", 2]),
    ("flatten", lambda op: op.Flatten(value("x", 2, 3, 4)), FLOAT, [2, 12]),
]


@pytest.mark.parametrize(
    ("write", "dtype", "shape"), [t[1:] for t in TOLD], ids=[t[0] for t in TOLD]
)
def test_types_and_shapes_of_new_nodes_are_told(write, dtype, shape):
    result = write(builder())
    assert result.dtype == dtype
    assert (None if result.shape is None else dims(result)) == shape


@pytest.mark.parametrize("name", contracts())
def test_every_shape_of_a_contract_is_understood(name):
    for tensor in (*contracts()[name].inputs, *contracts()[name].outputs):
        spec = symbols.axes(tensor.dims)
        assert sum(many for _, _, many in spec) <= 1
        assert tensor.type in ("T", "I", "int32", "int64", "uint8", "bool", "float32")


def test_sizes_that_contradict_each_other_tell_nothing():
    result = builder().ReluGrad(value("a", 2, 3), value("b", 4, 3))
    assert dims(result) == [None, 3]
