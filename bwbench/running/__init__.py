"""Running cells: one of them, composed ones, sweeps over all, learning rates, and other machines."""
