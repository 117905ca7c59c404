"""The link layer: nodes as namespaces, a shaped link between them, and a probe that measures what it really does."""
