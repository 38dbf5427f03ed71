"""What the pictures show is what the algorithms' functions compute, and the files are fit for a page."""

import re
from importlib.resources import files
from xml.etree import ElementTree

import numpy as np
import pytest

from fedref.checks import complex_step_gradient
from fedref.models.numerics import sigmoid
from fedref.teach import figure, pictures
from fedref.teach.figure import CLIENTS
from fedref.teach.pictures import PICTURES


def test_the_pictures_of_the_site_are_small(built):
    names = {path.stem: path.read_text("utf-8") for path in built.glob("*.svg")}
    assert names.keys() >= {name for page in PICTURES.values() for name in page}
    for text in names.values():
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert len(text) < 130_000


def test_the_same_picture_is_the_same_file_and_has_words(built):
    figure, alt, caption = pictures.draw(pictures.draw_drift)
    assert pictures.svg_text(figure) == (built / "drift.svg").read_text("utf-8")
    assert len(alt) > 20
    assert caption.endswith(".")
    pages = "".join(path.read_text("utf-8") for path in built.glob("*.html"))
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", pages)
    assert len(captions) == len(list(built.glob("*.svg")))
    assert not re.search(r"\b(nan|inf)\b", "".join(captions))


def test_one_local_step_rests_at_the_minimum_and_more_do_not():
    mean = np.mean([client.grad(pictures.resting_point(1)) for client in CLIENTS], 0)
    assert np.abs(mean).max() < 1e-9
    far = [
        np.linalg.norm(pictures.resting_point(tau) - pictures.resting_point(1))
        for tau in pictures.STEPS
    ]
    assert far == sorted(far)
    for tau in pictures.STEPS:  # a round from there leads back
        ends = [
            pictures.fedavg_path(client, pictures.resting_point(tau), tau)[-1] for client in CLIENTS
        ]
        np.testing.assert_allclose(np.mean(ends, 0), pictures.resting_point(tau), atol=1e-6)


def test_hf_has_a_least_error_between_truncation_and_rounding():
    errors, first_order = pictures.relative_errors(np.float64, np.array([1e-12, 1e-5, 1e-3, 1e-2]))
    assert errors[3] / errors[2] == pytest.approx(100, rel=0.05)  # δ²
    assert errors[0] > 100 * errors[1]
    low, _ = pictures.relative_errors(np.float32, np.array([1e-6, 3e-3]))
    assert low[0] > 100 * low[1]
    assert first_order > 0.01


def test_the_clients_of_the_ellipses_have_come_to_their_minimum():
    found = pictures.solve_two_clients()
    for w, D, I in zip(found.theta, found.data, found.fisher):
        assert np.abs(pictures.PLANE_MODEL.grad(w, D)).max() < 1e-8
        each = pictures.PLANE_MODEL.grad(w, D.per_sample())
        np.testing.assert_allclose(I, np.mean(each**2, 0), rtol=1e-12)


def test_masks_move_where_a_client_has_the_class():
    m, has = pictures.learn_masks()
    assert m.shape == has.shape == (10, 10)
    start = float(sigmoid(np.ones(())))
    assert np.abs(m[has] - start).mean() > 3 * np.abs(m[~has] - start).mean()


def test_meta_sgd_s_rates_begin_alike_and_spread():
    alpha = pictures.learn_rates()
    assert np.all(alpha[0] == pictures.META_ALPHA)
    assert alpha[-1].std() > 3 * alpha[5].std() > 0


def test_the_figure_takes_the_papers_steps():
    values = {"alpha": 0.3, "beta": 0.15, "delta": 1e-4, "tau": 6, "mu": 0.5}
    for k, client in enumerate(CLIENTS):
        objectives = {
            "exact": lambda w: client.loss(w - 0.3 * client.grad(w)),  # noqa: B023
            "hf": lambda w: client.loss(w - 0.3 * client.grad(w)),  # noqa: B023
            "fedprox": lambda w: client.loss(w) + 0.25 * np.sum((w - figure.W0) ** 2),  # noqa: B023
        }
        for variant, objective in objectives.items():
            path = figure.run_variant(variant, values).paths[k]
            step = path[1] - 0.15 * complex_step_gradient(objective, path[1])
            np.testing.assert_allclose(path[2], step, rtol=1e-6)
        found = [client.loss(ring) for ring in figure.loss_rings(client)]
        for level in (0.1, 0.4, 1, 2):
            assert any(np.allclose(ring, level, rtol=0.02) for ring in found)


def test_the_figure_s_minimum():
    mean = np.mean([client.grad(figure.minimum()) for client in CLIENTS], 0)
    np.testing.assert_allclose(mean, 0, atol=1e-9)


def test_pictures_have_the_page_s_colours():
    sheet = (files("fedref.teach") / "style.css").read_text("utf-8")
    light = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", sheet.partition("@media")[0]))
    assert [light[f"c{k}"] for k in range(4)] == list(pictures.LINE_COLOURS)
    assert (light["ink"], light["rule"], light["paper"]) == (
        pictures.INK, pictures.RULE, pictures.PAPER,
    )  # fmt: skip
