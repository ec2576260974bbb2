"""Coverage-guided fuzzing of the AMQP parser.

    python tests/fuzz/amqp_frames.py -max_total_time=60

Needs `atheris` (pip install atheris). The first byte of an input says whether the connection is
already open. Every crash is written to a file by libFuzzer and repeated by naming that file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

with atheris.instrument_imports(include=["penstock"]):
    from support.amqp_check import check_stream


def one_input(data: bytes) -> None:
    if data:
        check_stream(data[1:], logged_in=bool(data[0] & 1))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
