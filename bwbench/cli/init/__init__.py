"""``init``: a first experiment, or a plugin as a small package of its own; written once, never over anything."""
