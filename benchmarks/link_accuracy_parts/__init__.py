"""Parts of ``link_accuracy.py``: the measurements, the tools that they are made with, the table and the picture."""
