"""Launcher ``ssh``: torchrun on real hosts, started, watched and ended from here."""
