"""The kinds of pipelines: which dataclass a file's `kind` means, and which function runs it.

`load(path)` gives a checked definition or raises `PipelineInvalid` with file and line. Nothing of
Spark is imported before something runs, so a wrong file answers at once.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.spark.pipeline.building import build, needing
from penstock.spark.pipeline.document import read_document

# kind: module with the dataclass, a function check(definition, need), run(...) and dry_run(...)
KINDS = {
    "flow": ("penstock.spark.pipeline.definition", "Pipeline"),
    "redrive": ("penstock.spark.pipeline.redrive", "Redrive"),
    "replay": ("penstock.spark.pipeline.replay", "Replay"),
    "mirror": ("penstock.spark.pipeline.mirror", "Mirror"),
    "traffic": ("penstock.spark.pipeline.traffic", "Traffic"),
    "upkeep": ("penstock.spark.pipeline.housekeeping", "Housekeeping"),
}
RUNNERS = {
    "flow": "penstock.spark.pipeline.flow",
    **{kind: module for kind, (module, _) in KINDS.items() if kind != "flow"},
}


def load(path: Path) -> Any:
    """Read, check and complete a pipeline file."""
    document = read_document(path)
    values = {"name": path.stem, **document.values}
    kind = values.pop("kind", "flow")
    if not isinstance(kind, str) or kind not in KINDS:
        raise document.complaint(("kind",), f"{kind!r} is none of {', '.join(KINDS)}")
    module_name, class_name = KINDS[kind]
    module = importlib.import_module(module_name)
    definition = build(getattr(module, class_name), values, (), document)
    need = needing(document)
    letters = definition.name.replace(".", "").replace("_", "").replace("-", "")
    need(letters.isalnum() and letters.isascii(), ("name",), "use letters and digits")
    module.check(definition, need)
    return definition


def kind_of(definition: Any) -> str:
    """The word that a file says for it."""
    return next(kind for kind, (_, name) in KINDS.items() if type(definition).__name__ == name)


def runner(definition: Any) -> Any:
    """The module whose `run` and `dry_run` are meant for it."""
    return importlib.import_module(RUNNERS[kind_of(definition)])


def only_once(definition: Any) -> Any:
    """The same pipeline, but ending when it has done what there is to do now."""
    if kind_of(definition) == "flow":
        from penstock.spark.pipeline.definition import Trigger

        return replace(definition, trigger=Trigger(available_now=True))
    return replace(definition, every="") if hasattr(definition, "every") else definition


def spark_of(definition: Any, master: str | None) -> Any:
    """A session for a dry run; None for pipelines that Spark has no part in."""
    if kind_of(definition) == "upkeep" or getattr(definition, "queues", None):
        return None
    from penstock.spark.pipeline.work import spark_for

    return spark_for(definition, master)
