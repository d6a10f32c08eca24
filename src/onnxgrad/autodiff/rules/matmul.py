"""Matrix products."""

from onnx_ir import DataType

from onnxgrad.autodiff.rule import fused, rule


@rule("Gemm", wrt="A B C")
def gemm(op, A, B, C, dY, *, alpha, beta, transA, transB, need):
    """Y = alpha·A'·B' + beta·C."""
    return gemm_gradients(op, A, B, C, dY, alpha, beta, transA, transB, need)


def gemm_gradients(op, A, B, C, dY, alpha, beta, transA, transB, need):
    """Y = alpha·A'·B' + beta·C, where ' transposes when its flag is set.

    dA' = alpha·dY·B'ᵀ and dB' = alpha·A'ᵀ·dY; the gradient of a transposed input is transposed.
    """
    dA = dB = dC = None
    if "A" in need:
        dA = (
            op.Gemm(B, dY, alpha=alpha, transA=transB, transB=1)
            if transA
            else op.Gemm(dY, B, alpha=alpha, transB=1 - transB)
        )
    if "B" in need:
        dB = (
            op.Gemm(dY, A, alpha=alpha, transA=1, transB=transA)
            if transB
            else op.Gemm(A, dY, alpha=alpha, transA=1 - transA)
        )
    if "C" in need:
        dC = op.sum_to(op.Mul(dY, beta), C)
    return dA, dB, dC


@rule("MatMul", wrt="A B")
def matmul(op, A, B, dY, *, need):
    """dA = dY·Bᵀ and dB = Aᵀ·dY on the last two axes; batch axes may have been broadcast."""
    return product_gradients(op, A, B, dY, need)


@fused("MatMul", wrt="A B")
def matmul_of_a_frozen_matrix(op, A, B, dY, *, need):
    """dA = dY·Bᵀ with B read as it lies: a constant that is transposed would be kept a second time."""
    matrices = op.rank(B) == 2 and op.rank(A) >= 2 and op.dtype(A) == DataType.FLOAT
    if "B" in need or not matrices or not B.is_initializer():
        return NotImplemented
    dA = op("FusedMatMul", dY, B, domain="com.microsoft", transB=1)
    dA.dtype, dA.shape = op.dtype(A), A.shape
    return dA, None


def product_gradients(op, A, B, dY, need):
    """The gradients of A·B as MatMul has it: vectors, matrices, or batches of matrices."""
    a, b = op.rank(A), op.rank(B)
    A2 = op.Unsqueeze(A, [0]) if a == 1 else A
    B2 = op.Unsqueeze(B, [1]) if b == 1 else B
    dY2 = dY if a > 1 else op.Unsqueeze(dY, [-1 if b == 1 else -2])
    dY2 = dY2 if b > 1 else op.Unsqueeze(dY2, [-1])
    dA = dB = None
    if "A" in need:
        dA = op.sum_to(op.MatMul(dY2, transposed(op, B2, max(b, 2))), A2)
    if "B" in need and b <= 2:
        dB = op.Gemm(_rows(op, A2), _rows(op, dY2), transA=1)  # one product over all rows
    elif "B" in need:
        dB = op.sum_to(op.MatMul(transposed(op, A2, max(a, 2)), dY2), B2)
    return op.reshape_like(dA, A) if a == 1 else dA, op.reshape_like(dB, B) if b == 1 else dB


def transposed(op, x, rank):
    """Swap the last two axes."""
    return op.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])


def _rows(op, x):
    """[..., R, C] -> [rows, C]."""
    shape = op.dims(x)
    if shape is not None and len(shape) == 2:
        return x
    return op.Reshape(x, op.Concat([-1], op.dim(x, -1), axis=0))
