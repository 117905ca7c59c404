"""Parts of benchmarks/wire_bytes.py."""
