"""Parts of benchmarks/kill_trials.py."""
