"""The rules of the house that a machine can check. Each failure names file, line and rule.

Nothing is imported: the sources are read and parsed once, so all of it takes well under a second.
A function that must be longer than the limit says why on its `def` line: `# tidy: long, because`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
FILE_LINES = 400
FUNCTION_LINES = 60

# Imports point down: which of our packages each package may import. A dotted name is a part of a
# package. `app` puts everything together and `testing` starts it, so they may import all.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "options": {"errors"},
    "config": {"errors", "options"},
    "model": {"errors"},
    "wire": {"errors", "model.field_table"},  # the type system of AMQP, which records keep too
    "machines": {"model", "errors"},
    "runtime": {"errors"},
    "log": {"model", "errors", "runtime"},
    "catalogue": {"model", "errors", "runtime"},
    "cluster": {"model", "errors", "machines", "runtime", "log", "catalogue", "wire.kafka"},
    "services": {
        "model", "errors", "machines", "runtime", "log", "catalogue", "cluster", "config",
        "options",
    },
    "kafka": {"services", "wire.kafka", "model", "errors", "runtime", "config", "options"},
    "amqp": {"services", "wire.amqp", "model", "errors", "runtime", "config", "options"},
    "http": {"services", "model", "errors", "runtime", "config", "options"},
    "client": {"services", "model", "errors", "runtime"},
    # The home in this process is the one place of the library that starts a broker.
    "client.local": {"app", "config"},
    "client.amqp_channel": {"wire.amqp"},  # queues over the network are AMQP
    "client.amqp_connection": {"wire.amqp"},
    "aio": {"client"},
    "embedded": {"client", "model"},
    "sql": {"client", "model"},
    "cli": {"config", "process", "options", "errors", "spark"},
    "__main__": {"cli"},
    "spark": set(),
}  # fmt: skip
ROOMS_THAT_MAY_IMPORT_ALL = {"app", "process", "testing"}

# Sans-IO: what a pure room may not import, at any depth.
IMPURE = {
    "asyncio", "concurrent", "io", "logging", "multiprocessing", "os", "pathlib",
    "random", "secrets", "select", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile",
    "threading", "time", "uvloop",
}  # fmt: skip
PURE_ROOMS = ("wire", "machines")

ENTRY_POINTS = (
    "penstock", "penstock.__main__", "penstock.app", "penstock.embedded", "penstock.sql",
    "penstock.testing", "penstock.testing.plugin",
)  # fmt: skip
FORBIDDEN_NAMES = re.compile(r"Manager|Helper|Util|(^|_)(manager|helpers?|utils?|common|misc)($|_)")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The first name below `penstock`: `log` for `penstock.log.store`."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(ROOT)}:{line}"


def _read(path: Path) -> Module:
    parts = list(path.relative_to(SOURCE).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    text = path.read_text(encoding="utf-8")
    return Module(".".join(parts), path, text, ast.parse(text, str(path)))


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return {m.name: m for m in map(_read, sorted((SOURCE / "penstock").rglob("*.py")))}


def _imports(module: Module) -> list[tuple[int, str]]:
    """Every import anywhere in the module, as (line, dotted name), relative ones resolved."""
    found: list[tuple[int, str]] = []
    package = module.name.split(".")
    if module.path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package[: len(package) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def _fail_on(complaints: list[str]) -> None:
    assert not complaints, "\n" + "\n".join(complaints)


def test_imports_point_down(modules: dict[str, Module]) -> None:
    complaints = []
    for module in modules.values():
        if not module.room or module.room in ROOMS_THAT_MAY_IMPORT_ALL:
            continue
        own = MAY_IMPORT.get(module.name.removeprefix("penstock."), set())
        allowed = {module.room, *MAY_IMPORT[module.room], *own}
        for line, name in _imports(module):
            if not name.startswith("penstock."):
                continue
            target = name.removeprefix("penstock.")
            if target == "__version__":
                continue
            if not any(target == room or target.startswith(room + ".") for room in allowed):
                complaints.append(f"{module.at(line)}: {module.room} may not import {name}")
    _fail_on(complaints)


def test_the_two_doors_never_import_each_other() -> None:
    assert "amqp" not in MAY_IMPORT["kafka"]
    assert "kafka" not in MAY_IMPORT["amqp"]


def test_every_module_is_reached_from_an_entry_point(modules: dict[str, Module]) -> None:
    def edges(module: Module) -> set[str]:
        names = {name for _, name in _imports(module)}
        # Commands are loaded by name when they are called: a string that is a module is an edge.
        names |= {
            node.value
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        return names

    reached: set[str] = set()
    waiting = [name for name in ENTRY_POINTS if name in modules]
    waiting += [name for name in modules if name.startswith("penstock.testing.")]
    while waiting:
        name = waiting.pop()
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            prefix = ".".join(parts[:end])
            if prefix in modules and prefix not in reached:
                reached.add(prefix)
                waiting += edges(modules[prefix])
    dead = sorted(set(modules) - reached)
    _fail_on([f"{modules[name].at(1)}: nothing that can be started imports it" for name in dead])


def test_rules_and_bytes_are_pure(modules: dict[str, Module]) -> None:
    complaints = []
    for module in modules.values():
        if module.room not in PURE_ROOMS:
            continue
        for line, name in _imports(module):
            if name.split(".")[0] in IMPURE:
                complaints.append(f"{module.at(line)}: {module.room} may not import {name}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                complaints.append(f"{module.at(node.lineno)}: nothing in {module.room} waits")
            if isinstance(node, ast.Attribute) and node.attr in ("now", "utcnow", "today"):
                complaints.append(f"{module.at(node.lineno)}: time arrives as an argument")
            loops = [node.iter] if isinstance(node, ast.For) else []
            if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
                loops = [part.iter for part in node.generators]
            for loop in loops:
                if isinstance(loop, ast.Set | ast.SetComp) or (
                    isinstance(loop, ast.Call)
                    and isinstance(loop.func, ast.Name)
                    and loop.func.id in ("set", "frozenset")
                ):
                    complaints.append(f"{module.at(loop.lineno)}: a set has no order to go by")
    _fail_on(complaints)


def test_files_and_functions_stay_short(modules: dict[str, Module]) -> None:
    complaints = []
    for module in modules.values():
        lines = module.text.splitlines()
        if len(lines) > FILE_LINES:
            complaints.append(f"{module.at(1)}: {len(lines)} lines, at most {FILE_LINES}")
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES and "# tidy: long, because" not in lines[node.lineno - 1]:
                complaints.append(
                    f"{module.at(node.lineno)}: {node.name} has {length} lines, "
                    f"at most {FUNCTION_LINES}"
                )
    _fail_on(complaints)


def test_every_module_says_what_it_is(modules: dict[str, Module]) -> None:
    complaints = []
    for module in modules.values():
        if not module.text.strip():  # an empty __init__.py
            continue
        if not ast.get_docstring(module.tree):
            complaints.append(f"{module.at(1)}: has no docstring")
        elif (
            len(module.tree.body) > 1
            and module.path.name != "__init__.py"
            and "from __future__ import annotations" not in module.text
        ):
            complaints.append(f"{module.at(1)}: lacks `from __future__ import annotations`")
    _fail_on(complaints)


def test_names_say_what_a_thing_is(modules: dict[str, Module]) -> None:
    complaints = []
    for module in modules.values():
        if FORBIDDEN_NAMES.search(module.name.rsplit(".", 1)[-1]):
            complaints.append(f"{module.at(1)}: a module needs a better name")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and FORBIDDEN_NAMES.search(node.name):
                complaints.append(f"{module.at(node.lineno)}: {node.name} needs a better name")
    _fail_on(complaints)


def test_nothing_is_left_unfinished(modules: dict[str, Module]) -> None:
    complaints = []
    for module in modules.values():
        for number, line in enumerate(module.text.splitlines(), 1):
            if UNFINISHED.search(line):
                complaints.append(f"{module.at(number)}: {line.strip()}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Raise) and "NotImplementedError" in ast.unparse(node):
                complaints.append(f"{module.at(node.lineno)}: a stub")
    _fail_on(complaints)


def test_only_commands_print(modules: dict[str, Module]) -> None:
    """The broker logs; all it says on standard output is the ready line, from `process`."""
    complaints = []
    for module in modules.values():
        if module.room in ("cli", "process"):
            continue
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in ("print", "breakpoint"):
                complaints.append(f"{module.at(node.lineno)}: {node.func.id}()")
    _fail_on(complaints)


def test_every_option_of_the_broker_is_read_by_somebody(modules: dict[str, Module]) -> None:
    """An option that nothing looks at is a promise nobody keeps."""
    read = {
        node.attr
        for module in modules.values()
        if module.room != "options"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
    }
    complaints = []
    for module in modules.values():
        if module.room != "options":
            continue
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.value, ast.Call):
                continue
            is_topic_default = any(word.arg == "topic" for word in node.value.keywords)
            name = ast.unparse(node.target)
            if not is_topic_default and name not in read:
                complaints.append(f"{module.at(node.lineno)}: nothing reads {name}")
    _fail_on(complaints)
