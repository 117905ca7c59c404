"""Nodes as anonymous namespaces: the agent that makes and holds them, their wiring, and how the parent speaks to it."""
