"""Protocols without IO: bytes in, values out, and back."""
