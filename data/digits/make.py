"""Make digits.npz from the copy of the UCI digits that scikit-learn bundles: python data/digits/make.py

scikit-learn is needed only here. The archive is written with a fixed timestamp and no compression
level that depends on a library's default, so that making it again gives the same bytes.
"""

import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip archive can hold


def main() -> None:
    digits = load_digits()
    arrays = {"X": digits.data.astype(np.uint8), "y": digits.target.astype(np.uint8)}
    if not np.array_equal(arrays["X"], digits.data):
        raise SystemExit("the pixels are not whole numbers from 0 to 255")
    path = Path(__file__).with_name("digits.npz")
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array, allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", EPOCH)
            archive.writestr(info, member.getvalue(), zipfile.ZIP_DEFLATED, 9)
    print(f"{path.name}  sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
