"""What all parts of a network have in common: how they are written, what they take and give, how they are fitted."""
