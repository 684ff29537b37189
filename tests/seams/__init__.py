"""Proof of the seams: one part of every kind, each in one file, from building it to predicting with it."""
