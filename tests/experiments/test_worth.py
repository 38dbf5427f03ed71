"""Whether workers are used is measured, and changes no number."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from running import algorithms, contents, document, main, write

import fedref
from fedref.experiments import worth
from fedref.experiments.progress import Progress
from fedref.experiments.workers import Calm, Processes, Workers
from fedref.experiments.worth import Chosen, Enough
from fedref.rounds.cost import Counts

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands unless it is moved."""
    now = [0.0]
    monkeypatch.setattr(worth.time, "monotonic", lambda: now[0])
    return now


def test_units_are_sent_when_they_save_more_than_the_start_takes(clock):
    enough = Enough([10, 100, 90], 2, 2.0)  # 200 rounds
    assert not enough.at_once
    clock[0] = 0.021  # 4.2 s for 200 rounds, but that may be a slow first one
    assert not enough(None)
    clock[0] = 0.3  # 0.15 s a round, 29.7 s are left
    assert enough(None)
    assert enough.why == ": about 30 s of work are left"


@pytest.mark.parametrize(("seconds", "answer"), [(0.0190, False), (0.0215, True)])
def test_what_is_saved_is_the_share_of_the_other_workers(clock, seconds, answer):
    enough = Enough([100, 110], 2, 2.0)
    for _ in range(10):
        clock[0] += seconds
        found = enough(None)
    assert found is answer  # half of 200 rounds of so many seconds, against 2 s


def test_workers_that_are_there_are_used_at_once():
    assert Enough([1, 1], 2, 0.0).at_once


class Work:
    """Stands for Workers: a round takes so many seconds, by the clock."""

    def __init__(self, clock, seconds, workers=2):
        self.clock, self.seconds, self.workers, self.calls = clock, seconds, workers, 0

    def __call__(self, *call):
        self.clock[0] += self.seconds
        self.calls += 1
        return [], Counts(1, 0, 10, 0)


class Pool:
    """Stands for Calm: ready some rounds after its start."""

    starting = 2.0

    def __init__(self):
        self.started, self.asked = False, 0

    def start(self):
        self.started = True

    @property
    def ready(self):
        self.asked += 1
        return self.asked > 5


def chosen(clock, here, sent, rounds):
    told = []
    calm = Pool()
    choice = Chosen(Workers(workers=2), calm, rounds, told.append)
    choice.here, choice.sent = Work(clock, here), Work(clock, sent)
    choice.times = {choice.here: [], choice.sent: []}
    for _ in range(rounds):
        choice()
    return choice, calm, told


def test_little_work_starts_no_worker(clock):
    choice, calm, told = chosen(clock, here=0.01, sent=0.005, rounds=300)
    assert (choice.sent.calls, calm.started, told) == (0, False, [])


@pytest.mark.parametrize(("sent", "over"), [(0.06, True), (0.11, False)])
def test_rounds_are_done_where_they_proved_to_be_faster(clock, sent, over):
    choice, calm, told = chosen(clock, here=0.1, sent=sent, rounds=300)
    assert calm.started
    # three rounds here, five until the workers were ready, then four that were sent
    assert choice.sent.calls == (300 - 8 if over else 4)
    where = "over 2 processes" if over else "in one process"
    assert told == [f"rounds {where}: sent to 2 one takes {sent / 0.1:.2f} of its time here"]


def test_no_process_is_started_for_a_run_of_a_moment(here, monkeypatch):
    monkeypatch.setattr(Processes, "submit", lambda *call: pytest.fail("was used"))
    path = write(here / "t.toml", document(algorithms=algorithms("fedavg", "apfl")))
    assert main("run", path, "--out", "a", "--quiet", "--workers", "2") == 0
    assert main("run", path, "--out", "b", "--quiet") == 0
    assert contents(here / "a") == contents(here / "b")


def test_the_choice_in_a_run_changes_no_byte(here, monkeypatch):
    """With real processes, that are there after some rounds, for one unit of two rounds each."""
    monkeypatch.setattr(Processes, "starting", 1e-9)
    table, told = document(rounds=400, eval_every=100, algorithms=algorithms("apfl")), []
    with Processes(2) as executor:
        fedref.run(
            table, out="a", executor=executor, workers=2, progress=Progress(detail=told.append)
        )
        assert executor.started
    fedref.run(table, out="b")
    assert contents(here / "a") == contents(here / "b")
    assert len(told) == 1
    assert told[0].startswith(("rounds over 2 processes: ", "rounds in one process: "))


def test_an_executor_that_is_given_is_used(here):
    used = []

    class Watched(ThreadPoolExecutor):
        def submit(self, *call, **more):
            used.append(call)
            return super().submit(*call, **more)

    with Watched(2) as pool:
        fedref.run(document(), executor=pool, workers=2)
        assert len(used) == 2 * 3  # two parts of each round
        assert Calm(pool).starting == 0
