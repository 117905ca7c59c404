"""Pictures: a table in, a picture out. One file a figure; ``registry.FIGURES`` lists them."""
