"""The Python library: one set of calls with two homes, a broker in this process or one elsewhere.

`sync.py` and `aio.py` are the faces that people see; `home.py` says what a home must be able to do;
`local*.py` and `remote*.py` are the two homes. What both share, such as messages, filters and
progress, are plain functions and values in files of their own.
"""

from __future__ import annotations

import logging

# A library says nothing unless the program asks for it.
logging.getLogger("penstock").addHandler(logging.NullHandler())
