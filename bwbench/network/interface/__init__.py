"""Shaping of one real interface of this machine, taken back whatever happens to the one who asked for it."""
