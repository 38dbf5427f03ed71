"""What the pictures show is what the algorithms' functions compute, and the files are fit for a page."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from fedref.algorithms import per_fedavg
from fedref.checks import complex_step_gradient
from fedref.models.numerics import sigmoid
from fedref.teach import figure, svg
from fedref.teach.figure import CLIENTS
from fedref.teach.pictures import PICTURES, plane, runs


def test_the_pictures_of_the_site_are_small(built):
    names = {path.stem: path.read_text("utf-8") for path in built.glob("*.svg")}
    assert names.keys() >= {name for page in PICTURES.values() for name in page}
    for text in names.values():
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert len(text) < 130_000


def test_the_same_picture_is_the_same_file_and_has_words(built):
    figure, alt, caption = svg.draw(plane.correction)
    assert svg.svg_text(figure) == (built / "hessian-correction.svg").read_text("utf-8")
    assert len(alt) > 20
    assert caption.endswith(".")
    pages = "".join(path.read_text("utf-8") for path in built.glob("*.html"))
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", pages)
    assert len(captions) == len(list(built.glob("*.svg")))
    assert not re.search(r"\b(nan|inf)\b", "".join(captions))


def test_one_local_step_rests_at_the_minimum_and_more_do_not():
    mean = np.mean([client.grad(plane.limit(1)) for client in CLIENTS], 0)
    assert np.abs(mean).max() < 1e-9
    far = [np.linalg.norm(plane.limit(tau) - plane.limit(1)) for tau in plane.STEPS]
    assert far == sorted(far)
    for tau in plane.STEPS:  # a round from there leads back
        ends = [plane.path_of(client, plane.limit(tau), tau)[-1] for client in CLIENTS]
        np.testing.assert_allclose(np.mean(ends, 0), plane.limit(tau), atol=1e-6)


def test_the_arrow_is_steepest_descent_on_the_rings():
    def F(w):
        return per_fedavg.meta_objective(CLIENTS[0], w, plane.NOTHING, alpha=plane.ARROW_ALPHA)

    u, exact = plane.arrows()
    np.testing.assert_allclose(exact, complex_step_gradient(F, plane.ARROW_AT), rtol=1e-12)
    assert plane.angle(u, exact) > 20


def test_hf_has_a_least_error_between_truncation_and_rounding():
    errors, first_order = plane.relative_errors(np.float64, np.array([1e-12, 1e-5, 1e-3, 1e-2]))
    assert errors[3] / errors[2] == pytest.approx(100, rel=0.05)  # δ²
    assert errors[0] > 100 * errors[1]
    low, _ = plane.relative_errors(np.float32, np.array([1e-6, 3e-3]))
    assert low[0] > 100 * low[1]
    assert first_order > 0.01


def test_gamma_is_one_before_any_work_and_smaller_with_mu():
    free, held = runs.gammas(0.0), runs.gammas(1.0)
    assert free.shape == held.shape == (10, 21)
    assert np.all(free[:, 0] == 1)
    assert np.all(held.mean(0)[1:] < free.mean(0)[1:])


def test_the_clients_of_the_ellipses_have_come_to_their_minimum():
    found = plane.held()
    for w, D, I in zip(found.theta, found.data, found.fisher):
        assert np.abs(plane.PLANE_MODEL.grad(w, D)).max() < 1e-8
        each = plane.PLANE_MODEL.grad(w, D.per_sample())
        np.testing.assert_allclose(I, np.mean(each**2, 0), rtol=1e-12)


def test_masks_move_where_a_client_has_the_class():
    m, has = runs.masks()
    assert m.shape == has.shape == (10, 10)
    start = float(sigmoid(np.ones(())))
    assert np.abs(m[has] - start).mean() > 3 * np.abs(m[~has] - start).mean()


def test_meta_sgd_s_rates_begin_alike_and_spread():
    alpha = runs.alphas()
    assert np.all(alpha[0] == runs.META_ALPHA)
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
        np.testing.assert_allclose(client.loss(figure.ring(client, 0.4)), 0.4, rtol=1e-9)


def test_the_figure_s_minima_and_apfl_s_start():
    mean = np.mean([client.grad(figure.minimum()) for client in CLIENTS], 0)
    np.testing.assert_allclose(mean, 0, atol=1e-9)
    values = {"beta": 0.15, "mu": 0.5, "lam": 1, "steps": 6}
    paper, continuous = (figure.run_variant(name, values) for name in ("paper", "continuous"))
    assert np.all(paper.numbers[:2, 4:] == 1)  # z = 1: round 0 is FedAvg's
    assert np.all(paper.numbers[2:, 4:] < 1)
    np.testing.assert_array_equal(paper.mean[:2], continuous.mean[:2])
    assert not np.allclose(paper.mean[2:], continuous.mean[2:])
