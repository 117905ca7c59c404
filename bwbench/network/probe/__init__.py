"""What a link really does, measured between the nodes."""
