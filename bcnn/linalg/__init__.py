"""Linear algebra on batches of symmetric matrices: tensors in, tensors out; imports torch only (SciPy lazily)."""
