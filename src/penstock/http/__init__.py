"""The HTTP door: health, metrics and a JSON view of the broker."""
