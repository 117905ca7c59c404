"""The same search over learning rates for every arm, and the table that it fills."""
