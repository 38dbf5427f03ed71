"""The file and the frame: formats, the same bytes, the legend, wrong paths."""

import matplotlib
import pytest
from drawing import made

from fedref import plots
from fedref.boundary.errors import ConfigError, DataError


@pytest.mark.parametrize(
    ("draw", "kind", "start"),
    [
        (plots.curves, "PNG", b"\x89PNG"),
        (plots.curves, "pdf", b"%PDF"),
        (plots.curves, "svg", b"<?xml"),
        (plots.bars, "svg", b"<?xml"),
        (plots.clients, "svg", b"<?xml"),
    ],
)
def test_formats_and_the_same_bytes_twice(real, tmp_path, draw, kind, start):
    first, second = (tmp_path / f"{i}.{kind}" for i in (1, 2))
    draw(real, first)
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30}):  # a user's own settings
        draw(real, str(second))
    assert first.read_bytes().startswith(start)
    assert first.read_bytes() == second.read_bytes()


def test_drawing_leaves_matplotlib_as_it_was(real, tmp_path):
    before = dict(matplotlib.rcParams)
    plots.curves(real, tmp_path / "x.svg")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("name", ["x.jpeg", "x"])
def test_unknown_extension(name, tmp_path):
    with pytest.raises(ConfigError, match=r"expected \.png, \.svg or \.pdf"):
        plots.curves(made(), tmp_path / name)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "no").write_text("no folder")
    with pytest.raises(DataError, match="expected a folder that can be written"):
        plots.curves(made(), tmp_path / "no" / "x.png")


def test_the_legend_is_beside_the_data(seen):
    figure = seen(plots.curves, made([f"algorithm-{i}" for i in range(14)]))
    box = figure.legends[0].get_window_extent()
    assert all(axes.get_tightbbox().x1 <= box.x0 for axes in figure.axes)
    assert box.y0 >= 0
    assert box.x1 <= figure.bbox.x1
