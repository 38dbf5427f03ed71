"""The lines about Dask on the page, run on a cluster on this machine: the same bytes."""

import pytest
from running import ROOT, algorithms, contents, document, main, write


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [[0, 1, 2, 3], [0]], ids=["units", "rounds"])
def test_the_lines_of_the_page_give_the_same_bytes(here, seeds):
    """Eight workers: more units than that run side by side, of fewer the clients do."""
    distributed = pytest.importorskip("distributed")
    page = (ROOT / "fedref" / "README.md").read_text("utf-8")
    (lines,) = (text for text in page.split("```") if "from distributed import Client" in text)
    many = {"one": {"algorithm": "fedprox", "mu": 0.1}}
    path = write(here / "sweep.toml", document(seeds=seeds, algorithms=algorithms("apfl") | many))
    assert main("run", path, "--out", "a", "--quiet") == 0
    with distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster:
        exec(lines.removeprefix("python\n").replace("tcp://HOST:8786", cluster.scheduler_address))
    assert contents(here / "a") == contents(here / "DIR")
