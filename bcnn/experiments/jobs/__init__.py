"""The ways a number is measured; one file each."""
