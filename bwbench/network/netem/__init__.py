"""The netem back end: the kernel shapes."""
