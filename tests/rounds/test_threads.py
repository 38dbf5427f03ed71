"""When clients run on threads, what they leave as it was, and how they end."""

import threading
import time
import warnings
from _thread import interrupt_main
from functools import partial

import numpy as np
import pytest
from helpers import MODELS, make_federation, start

from fedref.algorithms.fedavg import FedAvg
from fedref.models import MLP
from fedref.rounds import loop, threads
from fedref.rounds.loop import run_clients, run_round
from fedref.rounds.threads import blas, limit_threads, run_parts
from fedref.sampling import Sampling, make_plan


@pytest.mark.parametrize(
    ("model", "rows", "steps", "most", "expected"),
    [
        (MLP(784, (80, 60), 10), 40, 20, 9, (2, 2)),  # 4 · 40 · 141 640 multiplications, 20 times
        (MLP(784, (80, 60), 10), 40, 5, 9, (1, 1)),  # 5 times: threads would start for 10 ms
        (MLP(784, (80, 60), 10), 10, 80, 9, (1, 1)),
        (MLP(784, (80, 60), 10), 40, 20, 1, (1, 1)),
        (MLP(784, (800,), 10), 40, 3, 9, (5, 4)),  # one by one: 40 · 1 278 400; 12 times
        (MODELS["mlp"], 40, 20, 9, (1, 1)),
    ],
)
def test_clients_run_on_threads_if_a_step_and_the_round_are_large(
    model, rows, steps, most, expected, monkeypatch
):
    asked = []

    def count(work, parts, threads, stop):
        asked.append((threads, len(parts)))
        raise EOFError  # the round itself takes long

    monkeypatch.setattr(loop, "run_parts", count)
    federated, algorithm = make_federation(model, (40, 60, 40, 50)), FedAvg()
    plan = make_plan(Sampling(4, steps=steps, batch_size=rows), federated.train.sizes, 0, 0)
    with limit_threads(most), pytest.raises(EOFError):
        run_round(algorithm, model, start(algorithm, model), plan, federated)
    assert asked == [expected]


def test_without_a_limit_there_is_a_thread_for_each_processor_of_this_process(monkeypatch):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda pid: {0, 2, 5}, raising=False)
    assert threads.available_threads() == 3
    with limit_threads(2):
        assert threads.available_threads() == 2


@pytest.mark.parametrize(
    ("threads", "stack", "expected"),
    [
        (1, True, [[0, 1, 2, 3]]),
        (1, False, [[0, 1, 2, 3]]),
        (2, True, [[1, 3], [2, 0]]),  # a stack a thread, each with one of the longest
        (9, True, [[1], [2], [3], [0]]),  # no part without clients
        (2, False, [[1], [2], [3], [0]]),  # the next free thread takes the next client
    ],
)
def test_clients_with_many_steps_begin_first(threads, stack, expected):
    parts = loop.divide(np.array([2, 9, 5, 3]), threads, stack)
    assert [list(part) for part in parts] == expected


def test_threads_have_the_caller_s_numpy_errors_and_blas_has_one_thread():
    def work(x):
        return np.float64(1e300) * x, {
            x["num_threads"] for x in blas().info() if x["user_api"] == "blas"
        }

    before = blas().info()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        assert run_parts(work, [1e300, 1e301, 0.0], 2) == [(np.inf, {1}), (np.inf, {1}), (0.0, {1})]
    assert blas().info() == before


def test_this_thread_takes_parts_too_and_the_first_part_that_fails_is_told():
    both, who = threading.Barrier(2, timeout=60), {}

    def meet(i):
        who[i] = threading.current_thread()
        both.wait()
        return i

    assert run_parts(meet, [0, 1], 2) == [0, 1]
    assert who[1] is threading.current_thread() is not who[0]

    def fail(i):
        both.wait()
        if i:
            raise ZeroDivisionError(i)
        both.wait()  # the part before it ends later, and fails, too
        raise ZeroDivisionError(i)

    ended = []

    def stop(first):
        ended.append(first)
        if first == 2:
            both.wait()

    with pytest.raises(ZeroDivisionError, match=r"^0$"):
        run_parts(fail, [0, 1], 2, stop)
    assert ended[0] == 2  # what follows part 1: not part 0


def fail():
    raise ZeroDivisionError("the largest")


class Endless(FedAvg):
    """Takes 5000 gradients for a step; at the client with the largest feature something happens."""

    def step(self, model, sent, local, D):
        if D.X.max() == self.largest and Endless.happens:
            once, Endless.happens = Endless.happens, None
            once()
        for _ in range(5000):
            Endless.gradients += 1
            model.grad(local, D)
            time.sleep(0.001)


@pytest.mark.parametrize(
    ("happens", "error"), [(interrupt_main, KeyboardInterrupt), (fail, ZeroDivisionError)]
)
def test_other_threads_end_at_ctrl_c_and_if_a_client_fails(happens, error):
    model = MODELS["logistic"]
    federated, algorithm = make_federation(model), Endless()
    Endless.largest = federated.batch(federated.train.rows_of(2)).X.max()  # it has the most steps
    Endless.gradients, Endless.happens = 0, happens
    plan = make_plan(Sampling(5, epochs=2, batch_size=0), federated.train.sizes, 0, 0)
    plan = plan._replace(steps=np.array([2, 2, 9, 2, 2]))
    work = partial(run_clients, stack=False, threads=3)
    before = {*threading.enumerate()}
    with pytest.raises(error):
        run_round(algorithm, model, start(algorithm, model), plan, federated, work=work)
    for thread in {*threading.enumerate()} - before:
        thread.join(60)
        assert not thread.is_alive()
    assert Endless.gradients < 5000  # no step came to its end
