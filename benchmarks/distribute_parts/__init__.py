"""Parts of the benchmarks whose ranks train by ``distribute``."""
