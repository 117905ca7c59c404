"""The relay: a user-space process passes every frame on when the link would have."""
