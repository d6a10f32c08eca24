"""Element-wise arithmetic. Broadcasting and accumulation are the walk's work, not the formula's."""

import math

from onnxgrad.autodiff.rule import fused, rule

rule("Identity", input=lambda op, doutput: doutput)
rule("OptionalGetElement", input=lambda op, doutput: doutput)
rule("Cast", input=lambda op, doutput: doutput)
rule("CastLike", input=lambda op, doutput: doutput, stop="target_type")

rule("Add", broadcast=True,
     A=lambda op, dC: dC,
     B=lambda op, dC: dC)  # fmt: skip
rule("Sub", broadcast=True,
     A=lambda op, dC: dC,
     B=lambda op, dC: op.Neg(dC))  # fmt: skip
rule("Mul", broadcast=True,
     A=lambda op, B, dC: op.Mul(dC, B),
     B=lambda op, A, dC: op.Mul(dC, A))  # fmt: skip
rule("Div", broadcast=True,
     A=lambda op, B, dC:    op.Div(dC, B),
     B=lambda op, B, C, dC: op.Neg(op.Div(op.Mul(dC, C), B)))  # fmt: skip

rule("Sum", broadcast=True, data_0=lambda op, data_0, dsum: [dsum] * len(data_0))
rule("Mean", broadcast=True,
     data_0=lambda op, data_0, dmean:
         [op.Div(dmean, float(len(data_0)))] * len(data_0))  # fmt: skip

rule("Neg", X=lambda op, dY: op.Neg(dY))
rule("Abs", X=lambda op, X, dY: op.Mul(dY, op.Sign(X)))
rule("Reciprocal", X=lambda op, Y, dY: op.Neg(op.Mul(dY, op.Mul(Y, Y))))
rule("Sqrt", X=lambda op, Y, dY: op.Div(op.Mul(dY, 0.5), Y))
rule("Exp", input=lambda op, output, doutput: op.Mul(doutput, output))
rule("Log", input=lambda op, input, doutput: op.Div(doutput, input))
rule("Erf", input=lambda op, input, doutput: op.Mul(  # 2/√π · exp(-x²)
    doutput, op.Mul(op.Exp(op.Neg(op.Mul(input, input))), 2 / math.sqrt(math.pi))))  # fmt: skip


def _square(op, x):
    return op.Mul(x, x)


# fmt: off
rule("Sin",   input=lambda op, input, doutput:  op.Mul(doutput, op.Cos(input)))
rule("Cos",   input=lambda op, input, doutput:  op.Neg(op.Mul(doutput, op.Sin(input))))
rule("Tan",   input=lambda op, output, doutput: op.Mul(doutput, op.Add(_square(op, output), 1.0)))
rule("Asin",  input=lambda op, input, doutput:
     op.Div(doutput, op.Sqrt(op.Sub(1.0, _square(op, input)))))  # fmt: skip
rule("Acos",  input=lambda op, input, doutput:
     op.Neg(op.Div(doutput, op.Sqrt(op.Sub(1.0, _square(op, input))))))  # fmt: skip
rule("Atan",  input=lambda op, input, doutput: op.Div(doutput, op.Add(_square(op, input), 1.0)))
rule("Sinh",  input=lambda op, input, doutput: op.Mul(doutput, op.Cosh(input)))
rule("Cosh",  input=lambda op, input, doutput: op.Mul(doutput, op.Sinh(input)))
rule("Asinh", input=lambda op, input, doutput:
     op.Div(doutput, op.Sqrt(op.Add(_square(op, input), 1.0))))  # fmt: skip
rule("Acosh", input=lambda op, input, doutput:
     op.Div(doutput, op.Sqrt(op.Sub(_square(op, input), 1.0))))  # fmt: skip
rule("Atanh", input=lambda op, input, doutput: op.Div(doutput, op.Sub(1.0, _square(op, input))))
# fmt: on


def _power_base(op, X, Y, dZ):
    """dX = dZ · Y · X^(Y-1), where 0 · X^-1 is 0 also at X = 0."""
    exponent = op.array(Y)
    if exponent is not None and exponent.size == 1:
        n = float(exponent.reshape(()))
        if n == 0:
            return None
        if n == 2:
            return op.Mul(dZ, op.Mul(X, 2.0))
        return op.Mul(dZ, op.Mul(X if n == 2 else op.Pow(X, n - 1), n))
    Y = op.Cast(Y, to=op.dtype(X))
    slope = op.Mul(Y, op.Pow(X, op.Sub(Y, 1.0)))
    return op.Mul(dZ, op.Where(op.Equal(Y, 0.0), 0.0, slope))


def _power_exponent(op, X, Z, dZ):
    """dY = dZ · Z · log X, and 0 where X is 0, as PyTorch has it."""
    zero = op.Equal(X, 0.0)
    return op.Where(zero, 0.0, op.Mul(dZ, op.Mul(Z, op.Log(op.Where(zero, 1.0, X)))))


rule("Pow", broadcast=True, X=_power_base, Y=_power_exponent)


def _mod_divisor(op, A, B, dC, *, fmod):
    """C = A - B · n with n the quotient rounded down, towards zero with fmod."""
    quotient = op.Div(A, B)
    towards_zero = op.Mul(op.Sign(quotient), op.Floor(op.Abs(quotient)))
    return op.Neg(op.Mul(dC, towards_zero if fmod else op.Floor(quotient)))


rule("Mod", broadcast=True, A=lambda op, dC: dC, B=_mod_divisor)


def _extremum(op, inputs, extreme, cotangent):
    """The inputs that attain the extreme share its cotangent equally, as in PyTorch."""
    if len(inputs) == 1:
        return [cotangent]
    hits = [op.Cast(op.Equal(x, extreme), to=op.dtype(extreme)) for x in inputs]
    share = op.Div(cotangent, op.Sum(*hits))
    return [op.Mul(share, hit) for hit in hits]


rule("Max", broadcast=True, data_0=lambda op, data_0, max, dmax: _extremum(op, data_0, max, dmax))
rule("Min", broadcast=True, data_0=lambda op, data_0, min, dmin: _extremum(op, data_0, min, dmin))


def _clip_input(op, input, min, max, doutput):
    """Inside the bounds, which count as inside (PyTorch's clamp), the cotangent passes."""
    inside = [] if min is None else [op.GreaterOrEqual(input, min)]
    inside += [] if max is None else [op.LessOrEqual(input, max)]
    if not inside:
        return doutput
    mask = inside[0] if len(inside) == 1 else op.And(*inside)
    return op.Where(mask, doutput, 0.0)


def _clip_min(op, input, min, max, doutput):
    """Where the input lies below min; with min > max the output is max everywhere."""
    below = op.Less(input, min)
    return op.Where(below if max is None else op.And(below, op.Less(min, max)), doutput, 0.0)


def _clip_max(op, input, min, max, doutput):
    above = op.Greater(input, max)
    return op.Where(above if min is None else op.Or(above, op.Greater(min, max)), doutput, 0.0)


rule("Clip", broadcast=True, input=_clip_input, min=_clip_min, max=_clip_max)


@fused("Clip", wrt="input min max")
def clip_fused(op, input, min, max, doutput, *, need):
    """One pass instead of two comparisons, And and Where; gradients of the bounds are the standard rule's."""
    bounds = [b for b in (min, max) if b is not None]
    scalars = all(op.dims(b) == () for b in bounds)
    if set(need) != {"input"} or not bounds or not scalars:
        return NotImplemented
    return op.ClipGrad(doutput, input, min, max), None, None


@rule("Dropout", wrt="data", stop="ratio")
def dropout(op, data, ratio, training_mode, doutput, *, forward):
    """Training mode: what was kept was scaled by 1/(1 - ratio). Otherwise nothing happened."""
    training = op.array(training_mode)
    if training_mode is None or (training is not None and not training):
        return doutput
    kept = op.Where(forward("mask"), doutput, 0.0)
    rate = op.array(ratio) if ratio is not None else 0.5
    if rate is not None and training is not None:
        return op.Mul(kept, 1 / (1 - float(rate)))
    # The run chooses the mode, or the ratio, which acts in training mode only.
    kind = op.dtype(data)
    rate = op.constant(0.5, kind) if ratio is None else op.Cast(ratio, to=kind)
    return op.Div(kept, op.Sub(1.0, op.Where(training_mode, rate, 0.0)))


@fused("Dropout", wrt="data", stop="ratio")
def dropout_fused(op, data, ratio, training_mode, doutput, *, forward):
    """In training mode; else nothing happened, which the standard rule says."""
    training = op.array(training_mode)
    own = ratio is None or (ratio.dtype == data.dtype and op.dims(ratio) == ())
    if training is None or not training or not own:
        return NotImplemented
    return op.DropoutGrad(doutput, forward("mask"), ratio)
