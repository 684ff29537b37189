r"""Joins a forward algorithm with a backward rule: the only place that knows autograd.

Two autograd Functions: `_Apply` computes Z = f(A) and, backwards, applies the rule; the rule is itself applied through
`_Derivative`, so that a second derivative is right where the rule has one (Lyapunov) and refused elsewhere, under
`torch.func` as well. The derivative of a spectral function is self-adjoint, so the forward-mode derivative is
the same rule applied to dA.

Paper: Sec. 2.2.

Legend: A symmetric matrices (..., d, d); Z = f(A); grad_Z = dL/dZ; X = dL/dA; p an exponent.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..errors import NotFiniteError, NotPositiveDefiniteError, SecondDerivativeError
from ..linalg import autodiff, checks, spectrum
from ..linalg.autodiff import BatchedFunction, apply, full_precision, is_transformed, to_front
from ..linalg.operand import Factored
from ..linalg.products import common_batch
from ..linalg.scaling import frobenius, norm
from .backward import BACKWARDS
from .contract import ForwardState, SpectralFunction
from .options import flag_or_none
from .plan import Plan, available_pairs, is_open, make_plan, methods_for
from .thin import is_thin, thin_matrix_function


class MatrixFunctionInfo(NamedTuple):
    """How exact a result is and how many steps it took; ``return_info=True`` returns it beside the result."""

    residual: Tensor  # (...), ||A - f^{-1}(Z)||_F / ||A||_F
    num_steps: int  # 0 for a decomposition


def matrix_function(
    function: SpectralFunction,
    A: Tensor | Factored,
    p: float | Tensor | None,
    *,
    forward: str = "auto",
    backward: str = "auto",
    check: bool | None = None,
    return_info: bool = False,
    thin: bool | None = None,
    **options: Any,
) -> Tensor | tuple[Tensor, MatrixFunctionInfo]:
    """f(A) by the named methods; see `sqrtm` for the arguments."""
    flag_or_none(function.wrapper, "thin", thin)
    given = A.X if isinstance(A, Factored) else A
    if isinstance(A, Factored):
        A = checks.check_factored(function.wrapper, A)
        left_open = is_open(forward, backward, options)
        if left_open and is_thin(A, thin) and not return_info:
            return _through_gram(function, A.X, A.ridge, p, check).to(given.dtype)
        if left_open:
            options |= methods_for(function.name, A.X.device.type, A.X.shape[-2], A.least)
        A = A.form()
    checks.check_square(function.wrapper, A)
    check = autodiff.should_check(check, A)
    tolerance = checks.spectrum_tolerance(A.shape[-1], A.dtype) if check else None
    plan = make_plan(function, A, forward=forward, backward=backward, tolerance=tolerance, options=options)
    dtype = torch.promote_types(A.dtype, torch.float32)  # half precision is computed in float32
    with full_precision(A):
        S = A.to(dtype)
        if tolerance is None or not plan.method.basis or not _is_symmetric_to_the_bit(S):
            S = torch.lerp(S, S.mT, 0.5)  # the symmetric part
            if tolerance is not None and not (plan.method.basis and _is_well_formed(A, S)):
                autodiff.check_values(partial(_check_input, plan, tolerance), A, S)
        exponent = None
        if function.dg_dp is not None:
            exponent = _exponent(function.wrapper, S, p, check)
            batch = common_batch(S.shape[:-2], exponent.shape)
            S, exponent = S.expand(*batch, *S.shape[-2:]), exponent.expand(batch)
        Z, steps = _run(plan, S, exponent)
        if check and not plan.method.basis:  # a decomposition looks at its own result
            autodiff.check_values(partial(checks.check_result, function.wrapper, False), Z)
        Z_out = Z.to(given.dtype)
        if not return_info:
            return Z_out
        with torch.no_grad():
            residual = (norm(S - function.inverse(Z, exponent)) / frobenius(S))[..., 0, 0]
        return Z_out, MatrixFunctionInfo(residual, 0 if steps is None else int(steps))


def _through_gram(function: SpectralFunction, X: Tensor, ridge: Any, p: Any, check: bool | None) -> Tensor:
    """The thin path, with the checks that a matrix which is formed would meet."""
    if function.dg_dp is not None:
        p = _exponent(function.wrapper, X, p, check)
    if autodiff.should_check(check, X):
        autodiff.check_values(partial(checks.check_finite, function.wrapper), X)
        autodiff.check_values(partial(_check_ridge, function.wrapper), ridge[..., None, None])
    Z = thin_matrix_function(function, X, ridge, p)
    if autodiff.should_check(check, X):
        autodiff.check_values(partial(checks.check_result, function.wrapper, True), Z)
    return Z


def _check_ridge(who: str, ridge: Tensor) -> None:
    if not bool((ridge > 0).all()):
        raise NotPositiveDefiniteError(
            f"{who}: expected a ridge > 0 on the thin path, got {float(ridge.min()):.1e}; raise `eps`."
        )


def _exponent(who: str, S: Tensor, p: Any, check: bool | None) -> Tensor:
    """P as a tensor, in the precision that spectra have, that broadcasts with the leading dimensions of A."""
    if not isinstance(p, (Tensor, float, int)) or (isinstance(p, Tensor) and not p.is_floating_point()):
        raise TypeError(f"{who}: expected `p` to be a number or a floating-point tensor, got {p!r}.")
    if not isinstance(p, Tensor) and not math.isfinite(p):
        raise ValueError(f"{who}: expected a finite `p`, got {p!r}.")
    exponent: Tensor = torch.as_tensor(p, dtype=spectrum.widest(S), device=S.device)
    if isinstance(p, Tensor) and autodiff.should_check(check, S):  # 1 to the power NaN is 1
        autodiff.check_values(partial(_check_exponent, who), exponent[..., None, None])
    try:
        common_batch(S.shape[:-2], exponent.shape)
    except RuntimeError:
        raise ValueError(
            f"{who}: expected `p` to broadcast with the leading dimensions of `A`, {tuple(S.shape[:-2])}, "
            f"got shape {tuple(exponent.shape)}."
        ) from None
    return exponent


def _check_exponent(who: str, p: Tensor) -> None:
    bad = ~p.isfinite()
    if bad.any():
        raise NotFiniteError(
            f"{who}: expected a finite `p`, got {float(p[bad][0])}; a learned exponent has diverged: lower its rate."
        )


def _run(plan: Plan, S: Tensor, p: Tensor | None) -> tuple[Tensor, Tensor | None]:
    spoilt = plan.keep_graph and not plan.method.second_in_float32 and S.dtype != torch.float64
    if spoilt and not torch.compiler.is_compiling():
        S = apply(_FirstOnly, S, plan, False)
    if plan.keep_graph or torch.jit.is_tracing():  # what is traced is to run without Python: no gradient of ours
        state = plan.algorithm(S, plan.function.at(p))
        return state.Z, state.steps
    function: type[torch.autograd.Function] = _ApplyPlain
    if torch.compiler.is_compiling():
        function = _Apply
    elif is_transformed():
        function = _ApplyTransformable
    Z, *rest = apply(function, S, p, plan)
    return Z, None if plan.method.basis else rest[0]


def _is_symmetric_to_the_bit(S: Tensor) -> bool:
    """Whether S is finite and its own symmetric part, as X X^T usually is: then autograd need not record that part."""
    return not is_transformed() and torch.equal(S, S.mT) and math.isfinite(S.detach().sum().item())


def _is_well_formed(A: Tensor, S: Tensor) -> bool:
    """Whether A is surely finite and symmetric up to rounding, told by a few operations; else each is looked at."""
    if is_transformed() or A.numel() == 0:
        return False
    A, S = A.detach(), S.detach()
    asymmetry = float((A - S).abs_().amax())  # NaN where an entry is not finite
    size = float(S.diagonal(dim1=-2, dim2=-1).amax(-1).amin())  # the smallest matrix of the batch
    return 2 * asymmetry <= checks.MAX_ASYMMETRY * size


def _check_input(plan: Plan, tolerance: float, A: Tensor, S: Tensor) -> None:
    who = plan.function.wrapper
    checks.check_finite(who, A)
    checks.check_symmetric(who, A.to(S.dtype), S, eps=torch.finfo(A.dtype).eps)
    if not plan.method.basis:  # a decomposition looks at its own spectrum
        checks.check_factorable(who, S, definite=plan.method.needs_definite, tolerance=tolerance)
        if plan.method.check is not None:
            plan.method.check(who, S, **plan.forward_options)


# --- autograd ---------------------------------------------------------------------------------------------------------

Saved = tuple[Tensor, Tensor | None, Tensor, Tensor | None, Tensor | None]  # A, p, Z, U, sigma


class _Apply(torch.autograd.Function):
    """Z = f(A), then whatever else the forward leaves; see `ForwardMethod.fields`."""

    @staticmethod
    def forward(A: Tensor, p: Tensor | None, plan: Plan) -> tuple[Tensor, ...]:
        state = plan.algorithm(A, plan.function.at(p))
        return tuple(getattr(state, name) for name in plan.method.fields)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        A, p, ctx.plan = inputs
        Z, *rest = output
        ctx.mark_non_differentiable(*rest)
        ctx.set_materialize_grads(False)
        saved = (A, p, Z, *(rest if ctx.plan.method.basis else (None, None)))
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, grad_Z: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad_Z is None:
            return None, None, None
        with full_precision(grad_Z):
            grad_Z = torch.lerp(grad_Z, grad_Z.mT, 0.5)
            grad_A = grad_p = None
            if ctx.needs_input_grad[0]:
                grad_A = _derivative(ctx.saved_tensors, grad_Z, ctx.plan)
            if ctx.needs_input_grad[1]:
                grad_p = _derivative(ctx.saved_tensors, grad_Z, _for_exponent(ctx.plan)).sum((-2, -1))
        return grad_A, grad_p, None


class _ApplyTransformable(_Apply):
    """`_Apply` with the rules for `torch.func.vmap` and forward-mode, which `torch.compile` does not take yet."""

    @staticmethod
    def jvp(ctx: Any, dA: Tensor | None, dp: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        _refuse_forward_mode(ctx.plan)
        saved, Z = ctx.saved_tensors, ctx.saved_tensors[2]
        with full_precision(Z):
            dZ = torch.zeros_like(Z)
            if dA is not None:
                dZ = dZ + _derivative(saved, (dA + dA.mT) / 2, ctx.plan)
            if dp is not None:
                everywhere = dp.to(Z.dtype)[..., None, None].expand_as(Z)
                dZ = dZ + _derivative(saved, everywhere, _for_exponent(ctx.plan))
        return dZ, *(None for _ in ctx.plan.method.fields[1:])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, tuple[int | None, ...]]:
        outputs = apply(_ApplyTransformable, *to_front(info, in_dims, arguments))
        return outputs, tuple(None if name == "steps" else 0 for name in arguments[-1].method.fields)


class _ApplyPlain(torch.autograd.Function):
    """The same without `torch.func` at work: torch calls it in a third of the time."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, p: Tensor | None, plan: Plan) -> tuple[Tensor, ...]:
        outputs = _Apply.forward(A, p, plan)
        _Apply.setup_context(ctx, (A, p, plan), outputs)
        return outputs

    backward = _Apply.backward
    jvp = _ApplyTransformable.jvp


def _derivative(saved: Saved, Q: Tensor, plan: Plan) -> Tensor:
    """The rule, recorded if a further derivative may be asked for."""
    compiling = torch.compiler.is_compiling()
    nobody = not torch.is_grad_enabled() and forward_ad._current_level < 0 and not is_transformed()
    if nobody and not compiling:
        return _Derivative.forward(*saved, Q, plan)
    function = _Derivative if compiling else _DerivativeTransformable
    result: Tensor = apply(function, *saved, Q, plan)
    return result


class _Derivative(torch.autograd.Function):
    """X = the rule applied to a symmetric right side Q: dL/dA from dL/dZ, and dZ from dA.

    For the Lyapunov rule, Z X + X Z = Q makes X a differentiable function of Z and Q, and its own derivative is the
    same rule again: with W the solution for dL/dX, dL/dQ = W and dL/dZ = -(W X + X W).
    """

    @staticmethod
    def forward(
        A: Tensor, p: Tensor | None, Z: Tensor, U: Tensor | None, sigma: Tensor | None, Q: Tensor, plan: Plan
    ) -> Tensor:
        return plan.rule(ForwardState(A, Z, U, sigma), Q, plan.function.at(p))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *saved, _, ctx.plan = inputs
        ctx.save_for_backward(*saved, output)
        ctx.save_for_forward(*saved, output)

    @staticmethod
    def backward(ctx: Any, grad_X: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_second(ctx.plan)
        *saved, X = ctx.saved_tensors
        with full_precision(grad_X):
            W = _derivative(saved, (grad_X + grad_X.mT) / 2, ctx.plan)
            return None, None, -(W @ X + X @ W), None, None, W, None


class _DerivativeTransformable(_Derivative):
    """`_Derivative` with the rules for `torch.func.vmap` and forward-mode."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        _refuse_second(ctx.plan)
        _, _, dZ, _, _, dQ, _ = tangents
        *saved, X = ctx.saved_tensors
        with full_precision(X):
            right = torch.zeros_like(X) if dQ is None else dQ
            if dZ is not None:
                right = right - (dZ @ X + X @ dZ)
            return _derivative(saved, (right + right.mT) / 2, ctx.plan)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
        *front, plan = to_front(info, in_dims, arguments)
        # Q may have more leading dimensions than the state (a vmap over dL/dZ alone): line the new one up.
        ranks = (2, 0, 2, 2, 1, 2)  # of A, p, Z, U, sigma, Q without leading dimensions
        leading = max(t.ndim - rank for t, rank in zip(front, ranks, strict=True) if t is not None)
        aligned = [
            None if t is None else t.reshape(t.shape[0], *(1,) * (leading - t.ndim + rank), *t.shape[1:])
            for t, rank in zip(front, ranks, strict=True)
        ]
        return apply(_DerivativeTransformable, *aligned, plan), 0


def _refuse_second(plan: Plan) -> None:
    if plan.second:
        return
    name = plan.function.wrapper
    rules = dict.fromkeys(b for _, b in available_pairs(plan.function.name))
    remedies = [f"backward={b!r}" for b in rules if BACKWARDS[b].second]
    remedies += ["backward='unrolled' with store=True" for b in rules if BACKWARDS[b].needs_iteration]
    remedy = f"use {' or '.join(remedies)}" if remedies else f"no rule of {name} has them"
    raise SecondDerivativeError(
        f"{name}: second derivatives are not available with backward={plan.backward!r}; {remedy}."
    )


def _refuse_forward_mode(plan: Plan) -> None:
    if not plan.self_adjoint:
        raise NotImplementedError(
            f"{plan.function.wrapper}: forward-mode derivatives are not available with backward={plan.backward!r} and "
            "store=False; use store=True."
        )
    # torch drops the outer tangent of what a custom jvp returns: forward over forward would be silently wrong.
    depth = autodiff.forward_depth()
    if depth is None and is_transformed():
        raise NotImplementedError(
            f"{plan.function.wrapper}: forward-mode derivatives are not available with torch {torch.__version__}: it "
            "does not say whether several are in each other; use reverse mode."
        )
    if depth is not None and depth > 1:
        raise SecondDerivativeError(
            f"{plan.function.wrapper}: forward-mode over forward-mode is not supported; "
            "use torch.func.hessian (forward over reverse) or jacrev(jacrev(...))."
        )


class _FirstOnly(BatchedFunction):
    """A itself, at the head of a graph whose second derivative rounding would spoil: that one is refused.

    Backwards it is put around the gradient, whose own derivative it is that is refused.
    """

    @staticmethod
    def forward(x: Tensor, plan: Plan, is_gradient: bool) -> Tensor:
        del plan, is_gradient
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _: Tensor) -> None:
        _, ctx.plan, ctx.is_gradient = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        if ctx.is_gradient:
            raise _spoilt(ctx.plan)
        return apply(_FirstOnly, grad, ctx.plan, True), None, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor, *_: Any) -> Tensor:
        if ctx.is_gradient:
            raise _spoilt(ctx.plan)
        _refuse_forward_mode(ctx.plan._replace(self_adjoint=True))
        return dx.clone()


def _spoilt(plan: Plan) -> SecondDerivativeError:
    return SecondDerivativeError(
        f"{plan.function.wrapper}: second derivatives of this iteration's steps are spoilt by rounding in float32; "
        "pass float64, or use backward='lyapunov' (sqrtm), whose derivatives are right to every order."
    )


def _for_exponent(plan: Plan) -> Plan:
    """The plan whose rule is the derivative by the exponent, for `_derivative` to apply."""
    return plan._replace(rule=_along_exponent, second=False)


def _along_exponent(state: ForwardState, Q: Tensor, f: SpectralFunction) -> Tensor:
    """dZ/dp times Q, entry by entry: a rule like the others."""
    assert f.dg_dp is not None
    assert f.p is not None
    assert state.U is not None
    assert state.sigma is not None
    return spectrum.compose(state.U, f.dg_dp(state.sigma, f.p)) * Q
