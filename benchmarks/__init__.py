"""Measurements of a running broker, always as a ratio to a peer in the same run."""
