"""Golden vectors without NumPy: `python reader.py CASE.npz` prints every array, `read` returns them.

An .npz here is an uncompressed zip of .npy members; each of these is a header (a Python literal with
descr, fortran_order and shape) and then the numbers, little-endian, in C order.
"""

import ast
import struct
import sys
import zipfile

FORMATS = {"<f8": "d", "<i8": "q", "|b1": "?"}


def read_npy(data: bytes) -> tuple[str, tuple, tuple]:
    """(type, shape, flat values) of one member."""
    if data[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError("not an .npy of version 1.0")
    (length,) = struct.unpack_from("<H", data, 8)
    header = ast.literal_eval(data[10 : 10 + length].decode("latin1"))
    assert not header["fortran_order"]
    kind, shape, count = header["descr"], header["shape"], 1
    for n in shape:
        count *= n
    return kind, shape, struct.unpack_from(f"<{count}{FORMATS[kind]}", data, 10 + length)


def read(path: str) -> dict[str, tuple[str, tuple, tuple]]:
    """name → (type, shape, flat values); names begin with "in." or "out."."""
    with zipfile.ZipFile(path) as archive:
        return {
            name.removesuffix(".npy"): read_npy(archive.read(name)) for name in archive.namelist()
        }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python reader.py CASE.npz")
    try:
        arrays = read(sys.argv[1])
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        sys.exit(f"{sys.argv[1]}: {error}")
    for name, (kind, shape, values) in arrays.items():
        numbers = " ".join(f"{value:.17g}" for value in values)
        print(name, kind, "x".join(map(str, shape)) or "-", numbers, sep="\t")
