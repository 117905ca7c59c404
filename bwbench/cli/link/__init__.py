"""``bwbench link``: the link layer by itself, ask for a link, measure what it does."""
