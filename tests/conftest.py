"""Settings that hold for all tests."""

import os

os.environ.setdefault("BWBENCH_SHARE_MACHINE", "1")  # no test waits for whatever else runs cells on this machine
