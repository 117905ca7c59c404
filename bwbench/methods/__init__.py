"""How replicas agree: the algorithms, the collectives, the compressions, and what each of them says of itself."""
