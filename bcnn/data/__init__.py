"""Images: reading them and preparing them for a network."""
