"""Fine-tuning from end to end: the matrix functions' gradients at work."""
