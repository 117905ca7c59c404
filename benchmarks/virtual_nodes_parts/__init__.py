"""Parts of ``virtual_nodes.py``: one cell trained by real workers and by virtual nodes, and what they must share."""
