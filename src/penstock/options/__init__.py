"""The broker's options: one table per area, and `option.py`, which says what an option is."""
