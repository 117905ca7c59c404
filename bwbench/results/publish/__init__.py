"""Records small enough to be committed: what tables, figures and reports need of an experiment, in one file."""

from bwbench.results.publish.publish import Published, publish

__all__ = ["Published", "publish"]
