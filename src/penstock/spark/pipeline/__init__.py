"""Pipelines: a short file that says what flows where, checked before Spark starts, run by Spark."""
