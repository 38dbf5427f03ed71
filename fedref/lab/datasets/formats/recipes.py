"""Lines of Python that turn a format that fedref does not read into one that it reads.

`fedref data --help` prints them, and so does the refusal of such a file. Some need another package.
"""

#: Format → lines. They keep to one file, whose name is the user's to change.
RECIPES = {
    "PFLlib": (
        "import numpy as np; from pathlib import Path",
        'd = {f: np.load(f, allow_pickle=True)["data"].item() for f in sorted(Path().glob("t*/*.npz"))}',
        'X, y = (np.concatenate([np.asarray(d[f][k]) for f in d]) for k in "xy")',
        'X, n = X if X.ndim < 4 else np.moveaxis(X, 1, -1), [len(d[f]["y"]) for f in d]',
        'rows = np.repeat([[int(f.stem), f.parent.name == "test"] for f in d], n, 0)',
        'np.savez("data.npz", X=X, y=y, client=rows[:, 0], test=rows[:, 1])',
    ),
    "ARFF": (
        "import pandas as pd; from scipy.io.arff import loadarff",
        'table = pd.DataFrame(loadarff("data.arff")[0])  # the class is its last column',
        "table = table.map(lambda x: x.decode() if isinstance(x, bytes) else x)",
        'table.rename(columns={table.columns[-1]: "y"}).to_csv("data.csv", index=False)',
    ),
    "HDF5": (
        "import h5py, numpy as np",
        'f = h5py.File("data.h5")  # print(list(f)) lists its names',
        'np.savez("data.npz", X=f["X"][:], y=f["y"][:])',
    ),
    "HDF5 of TensorFlow Federated": (
        "import h5py, numpy as np",
        'f = h5py.File("fed_emnist_train.h5")["examples"]',
        'X, y = (np.concatenate([f[c][k][:] for c in f]) for k in ("pixels", "label"))',
        'client = np.repeat(list(f), [len(f[c]["label"]) for c in f])',
        'np.savez("data.npz", X=X, y=y, client=client)',
    ),
    "Parquet": (
        "import numpy as np, pandas as pd",
        'table = pd.read_parquet("data.parquet")',
        'np.savez("data.npz", X=table.drop(columns="y").to_numpy(float), y=table["y"])',
    ),
    "images": (
        "import numpy as np; from pathlib import Path; from PIL import Image",
        'files = sorted(Path("images").glob("*/*.*"))  # LABEL/NAME.png, all of one size',
        "X = np.stack([np.asarray(Image.open(f)) for f in files])",
        'np.savez("data.npz", X=X, y=np.array([f.parent.name for f in files]))',
    ),
}
SUFFIXES = {
    ".parquet": "Parquet",
    ".png": "images",
    ".jpg": "images",
    ".arff": "ARFF",
} | dict.fromkeys((".h5", ".hdf5", ".hdf"), "HDF5")


def one_line(name: str) -> str:
    """Return a recipe as one line of Python, without its remarks."""
    lines = (line.partition("  # ")[0] for line in RECIPES[name])
    return f"a .csv or .npz; `fedref data --help` says how {name} becomes one: {'; '.join(lines)}"


def all_of_them() -> str:
    """Return all recipes, as `fedref data --help` prints them."""
    parts = list[str]()
    for name, (first, *more) in RECIPES.items():
        long = len(name) > 12
        parts += [f"  {name}"] * long + [f"  {'' if long else name:<13}{first}"]
        parts += [f"  {'':<13}{line}" for line in more]
    return "\n".join(parts)
