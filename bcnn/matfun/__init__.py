"""Differentiable matrix functions of symmetric positive (semi-)definite matrices (Sec. 2.2 of the paper)."""
