"""What a unit's numbers are computed from (its file has the hash), and what their last digits depend on."""

import ast
import inspect
import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.util import find_spec, resolve_name
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

import fedref
from fedref.boundary.errors import FOREIGN, DataError
from fedref.boundary.files import read_json, write_atomically
from fedref.lab.datasets.sources import is_in_memory
from fedref.lab.experiments import names
from fedref.lab.experiments.unit import LoadedExperiment, Unit
from fedref.rounds.threads import blas

# ---- the environment -----------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Return everything besides config.toml that the last digits of a run depend on."""
    built: Any = np.show_config(mode="dicts")
    library = built["Build Dependencies"]["blas"]
    kernels = {str(i.get("architecture")) for i in blas().info() if i.get("user_api") == "blas"}
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "blas": f"{library.get('name')} {library.get('version')}",
        "kernel": ", ".join(sorted(kernels)),
    }


def read_environment(directory: Path) -> dict[str, Any]:
    """Return what environment.json holds; nothing if it is gone or damaged."""
    with suppress(DataError):
        return read_json(directory / "environment.json", "the file as the run left it")
    return {}


def write_environment(directory: Path, content: Mapping[str, Any] | None = None) -> None:
    """Write environment.json; content : None: this process's environment."""
    text = json.dumps(content or environment(), indent=1) + "\n"
    write_atomically(directory / "environment.json", text.encode())


def compare_environment(directory: Path) -> str:
    """Return how this process differs from the one that began the run, as text; "" if it does not.

    An environment.json that is gone or damaged is written anew.
    """
    now, read = environment(), read_environment(directory)
    if not now.keys() <= read.keys():
        write_environment(directory, {**read, **now})
        return "environment.json was gone or damaged: whether the last digits will match is unknown"
    then = {key: str(read[key]) for key in now}
    # a library that is not loaded yet, SciPy's, shows no kernel
    kernels = [set(side["kernel"].split(", ")) for side in (then, now)]
    if kernels[0] <= kernels[1] or kernels[1] <= kernels[0]:
        now["kernel"] = then["kernel"]
    differs = [f"{key} {then[key]}, now {now[key]}" for key in now if then[key] != now[key]]
    return f"begun with {'; '.join(differs)}: the last digits may differ" if differs else ""


# ---- the seal ------------------------------------------------------------------------------------

DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
UNIT, DATA = "unit", "the data or the split"
#: fedref's modules that numbers depend on.
ROOMS = {f"fedref.{x}": f"{x}/*.py" for x in ("models", "algorithms", "rounds", "judge")}
ROOMS |= {f"fedref.{x}": f"{x}.py" for x in ("algorithm", "sampling", "spec")}
# unit, generator, own_code, torch_model
ROOMS["fedref.lab.experiments"] = "lab/experiments/[ugot]*.py"


def seal_of(
    unit: Unit, loaded: LoadedExperiment, split_hash: str, rooms: Mapping[str, str]
) -> dict[str, str]:
    """Return everything that a unit's numbers are computed from, by name."""
    data = unit.experiment.data["name"]
    function = None if is_in_memory(data) else names.find_function(data)
    things = type(unit.algorithm), type(loaded.model), function
    modules = own_modules({str(getattr(thing, "__module__", "")) for thing in things})
    hashes = {name: hash_code([path]) for name, path in modules.items()}
    return {UNIT: unit.file, DATA: split_hash, **rooms, **hashes}


@cache
def numeric_rooms() -> dict[str, str]:
    """Return the hash of each of fedref's rooms that numbers depend on."""
    top = Path(fedref.__file__).parent
    return {name: hash_code(sorted(top.glob(pattern))) for name, pattern in ROOMS.items()}


def hash_code(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of modules without comments, docstrings and layout; of other files, of bytes."""
    code = [ast.unparse(parse(x)) if x.suffix == ".py" else x.read_bytes() for x in paths]
    return sha256(repr(code).replace("'", '"').encode()).hexdigest()  # Python 3.11 quotes otherwise


def parse(path: Path) -> ast.Module:
    """Return a module's syntax tree without docstrings."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def own_modules(imported: Iterable[str]) -> dict[str, Path]:
    """Return name → file of modules that are the user's, and of those that they import, at any place."""
    files, left = dict[str, Path](), [*imported]
    while left:
        name = left.pop()
        place = own_place(name)
        if name in files or not (place and os.path.isfile(place)):
            continue
        files[name] = file = Path(place)
        if file.suffix == ".py":
            package = name if file.stem == "__init__" else name.rpartition(".")[0]
            left += imported_names(parse(file), package)
    return files


def imported_names(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the modules that a module imports, their packages, and what may be modules."""
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # relative, and there is no package
                module = resolve_name("." * node.level + (node.module or ""), package)
                modules = [f"{module}.{alias.name}" for alias in node.names]
        for module in modules:
            yield from accumulate(module.split("."), "{}.{}".format)


def own_place(name: str) -> str | None:
    """Return the file of a module, or the folder of a package without one, if it is the user's own."""
    module, top = sys.modules.get(name), name.partition(".")[0]
    places: list[Any] = []
    with suppress(Exception):  # whatever a module says of itself
        if inspect.ismodule(module):  # no `__getattr__`
            places = [vars(module).get("__file__"), *vars(module).get("__path__", ())]
        elif module is None and (top == name or own_place(top)):  # find_spec imports packages
            spec: Any = find_spec(name)
            places = [spec.origin, *(spec.submodule_search_locations or ())]
    place = next((place for place in places if isinstance(place, str)), "")
    installed = {"site-packages", "dist-packages"} & {*Path(place).parts}  # for a user, too
    foreign = installed or place.startswith(FOREIGN) or not os.path.exists(place)
    return None if foreign else place


def check_seal(
    directory: Path, unit: Unit, then: Mapping[str, str], now: Mapping[str, str], changed_code: bool
) -> None:
    """Refuse to go on with a unit that was computed from other things.

    changed_code : go on if only code has changed; environment.json and summary.md then say so.
    """
    for key in sorted({*then, *now}):
        was, is_now = then.get(key, "nothing"), now.get(key, "nothing")
        text, noted = f"{key} was {was:.12}, now {is_now:.12}", changes_of(directory)
        if was == is_now or text in noted:
            continue
        if key == DATA or not changed_code:
            expected = f"the same, or `fedref run {directory}/config.toml` anew"
            if key != DATA:
                expected += f", or `fedref resume --changed-code {directory}` to go on"
            what = f"{key} changed after {unit.name} began"
            raise DataError(f"{directory}: {what}; expected {expected}")
        write_environment(directory, {**read_environment(directory), "changed": [*noted, text]})


def changes_of(directory: Path) -> list[str]:
    """Return what code a run went on with that it did not begin with, from environment.json."""
    changed = read_environment(directory).get("changed")
    return [*map(str, changed)] if isinstance(changed, list) else []
