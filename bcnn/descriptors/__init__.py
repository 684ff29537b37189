"""Descriptors of whole datasets, on disk."""
