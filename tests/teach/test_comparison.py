"""A student's expression in the two bowls, beside the right one."""

import numpy as np
import pytest
from teach.test_exercises import fill

from fedref.teach import comparison, pictures
from fedref.teach.exercises import EXERCISES


@pytest.mark.parametrize("name", EXERCISES)
def test_the_specification_plays_the_rounds_of_the_page(name):
    one = EXERCISES[name]
    _, played = pictures.play(one.algorithm, tuple(one.shown.items()))
    assert np.allclose(
        comparison.play_spec(one)[1 : 1 + len(played)], [r.after for r in played], atol=1e-9
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [("u - alpha * f.hvp(w, u, D2)", "rests 0.021 from the slanted cross"), ("u", "rests 0.543"),
     ("u + alpha * f.hvp(w, u, D2)", "0.644"), ("alpha * f.hvp(w, u, D2)", "1.406"), ("1e9 * u", "diverges"),
     ("1 / 0", "line 27: ZeroDivisionError"), ("...", "not finished")],
)  # fmt: skip
def test_where_an_answer_comes_to_rest_is_said_and_drawn(answer, said):
    one = EXERCISES["meta-gradient"]
    both = comparison.compare(one, fill("meta-gradient", answer), "mine.py", 20.0)
    if isinstance(both, str):
        assert said in both
        return
    assert said in both.words()
    figure = pictures.draw(comparison.draw, both)
    assert said in figure.axes[0].get_title()
