"""What happens on a node: the training loop, the library for scripts of one's own, models and data sets."""
