"""From images to scores: backbones, their weights, and the network."""
