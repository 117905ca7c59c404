"""One self-contained HTML page of a result folder: ``payload`` collects, ``render`` inlines, the browser computes."""
