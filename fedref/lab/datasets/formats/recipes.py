"""Lines of Python that turn a format that fedref does not read into one that it reads.

`fedref data --help` prints them, and so does the refusal of such a file. Some need another package.
"""

from importlib.resources import files

BLOCKS = (files(__package__) / "recipes.txt").read_text("utf-8").strip().split("\n\n")
#: Format → lines. They keep to one file, whose name is the user's to change.
RECIPES = {name: lines for name, *lines in map(str.splitlines, BLOCKS)}
SUFFIXES = {".parquet": "Parquet", ".png": "images", ".jpg": "images", ".arff": "ARFF"}
SUFFIXES |= dict.fromkeys((".h5", ".hdf5", ".hdf"), "HDF5")


def one_line(name: str) -> str:
    """Return a recipe as one line of Python, without its remarks."""
    lines = (line.partition("  # ")[0] for line in RECIPES[name])
    return f"a .csv or .npz; `fedref data --help` says how {name} becomes one: {'; '.join(lines)}"


def all_of_them() -> str:
    """Return all recipes, as `fedref data --help` prints them."""
    parts = list[str]()
    for name, (first, *more) in RECIPES.items():
        long = len(name) > 12
        parts += ([f"  {name}"] if long else []) + [f"  {'' if long else name:<13}{first}"]
        parts += [f"  {'':<13}{line}" for line in more]
    return "\n".join(parts)
