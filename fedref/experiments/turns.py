"""Units over an executor: each goes on for about a second at a time, and comes back with its results.

What is worked on is a pure function of its arguments, so any executor will do, on any machine; only
the process that hands out the turns writes files. Whoever dies in a turn has lost that turn alone.
"""

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import replace
from typing import Any, NamedTuple

from fedref.algorithm import AnyAlgorithm
from fedref.boundary.errors import FedrefError
from fedref.experiments.keeping import Book, Seen
from fedref.experiments.run_directory import is_kept
from fedref.experiments.setting import Loader, Setting
from fedref.experiments.unit import Record, rounds
from fedref.experiments.workers import found
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation

#: Seconds of a turn, more where it takes long to send what a unit keeps from one to the next.
TURN = 1.0
SENDING = 100  # a turn takes so many times what it takes to pickle its results


class Turn(NamedTuple):
    """What a turn has come to; of the rows, rounds and scores only what is new, after the last row
    before it."""

    record: Record
    seen: list[Seen]
    told: list[str]
    pickling: float  # seconds


def turn(
    setting: Any, X: Any, y: Any,
    algorithm: AnyAlgorithm, seed: int, before: Record | None, seconds: float,
) -> Turn:  # fmt: skip
    """The next rounds of a unit, at least one, for so many seconds; before : where it stands."""
    began, told, seen, spent = time.monotonic(), list[str](), [], list[tuple[str, float]]()
    whole = with_data(found(setting), found(X), found(y))
    for record in rounds(
        whole, algorithm, seed, before, message=told.append, spent=lambda *what: spent.append(what)
    ):
        seen.append(Seen(record.status, len(record.rows), tuple(spent)))
        spent.clear()
        if time.monotonic() - began >= seconds or is_kept(whole.experiment, record):
            break  # who has the book keeps the state
    now = time.monotonic()
    pickle.dumps(record, pickle.HIGHEST_PROTOCOL)
    return Turn(record, seen, told, time.monotonic() - now)


def cut(record: Record | None) -> Record | None:
    """What of a record the next turn needs."""
    return record and record._replace(rows=record.rows[-1:], rounds=[], scores=[])


def joined(before: Record | None, after: Record) -> Record:
    """The whole record after a turn that was given `cut(before)`."""
    if before is None:
        return after
    return after._replace(
        rows=[*before.rows, *after.rows[1:]],
        rounds=[*before.rounds, *after.rounds],
        scores=[*before.scores, *after.scores],
    )


def take_turns(
    books: Iterator[Book],
    executor: Executor,
    workers: int,
    ended: Callable[[Book], None],
) -> None:
    """Every unit to its end, `workers` at a time; ended : called as they end.

    A unit that fails ends the run as in one process: those before it are finished, those after it
    stop where they are, and its error is raised.
    """
    at_work: dict[Future[Turn], int] = {}
    open_books: dict[int, Book] = {}
    failed: tuple[int, Exception] | None = None
    send = Sender(executor)

    def submit(number: int, seconds: float) -> None:
        at_work[send(open_books[number], seconds)] = number

    def close(number: int) -> None:
        ended(open_books.pop(number))

    numbered = enumerate(books)
    try:
        while True:
            while failed is None and len(at_work) < workers:
                number, book = next(numbered, (-1, None))
                if book is None:
                    break
                open_books[number] = book
                if book.ended:
                    close(number)
                else:
                    submit(number, min(TURN, book.every))
            if not at_work:
                break
            for future in wait(at_work, return_when=FIRST_COMPLETED).done:
                number = at_work.pop(future)
                book = open_books[number]
                try:
                    came = future.result()
                except BrokenExecutor as error:
                    lost = [number, *(n for other, n in at_work.items() if other.exception())]
                    raise died([open_books[n] for n in sorted(lost)], error) from error
                except Exception as error:
                    if failed is None or number < failed[0]:
                        failed = number, error
                    continue
                old = len(book.record.rows) - 1 if book.record else 0
                book.record = joined(book.record, came.record)
                if not book.ended and (failed is None or number < failed[0]):
                    seconds = max(min(TURN, book.every), SENDING * came.pickling)
                    submit(number, seconds if book.every else 0)
                for text in came.told:
                    book.progress.message(text)
                book.went_on([seen._replace(rows=old + seen.rows) for seen in came.seen])
                if book.ended:
                    close(number)
        if failed is not None:
            raise failed[1]
    finally:  # stopped: what has been done is not done again
        for future in at_work:
            future.cancel()
        leave(open_books.values())


class Sender:
    """Sends a unit's next turn to an executor; data and setting once a worker, if there is a way."""

    def __init__(self, executor: Executor) -> None:
        self.executor, self.share = executor, getattr(executor, "share", None) or (lambda x: x)
        self.bare: dict[int, tuple[Setting, Setting]] = {}  # the setting stays, and with it its id

    def __call__(self, book: Book, seconds: float) -> Future[Turn]:
        setting, source = book.setting, book.setting.federation.source
        _, bare = self.bare.setdefault(id(setting), (setting, without_data(setting)))
        data = self.share(source.X), self.share(source.y)
        rest: tuple[Any, ...] = (book.algorithm, book.unit.seed, cut(book.record), seconds)
        return self.executor.submit(turn, self.share(bare), *data, *rest)


def without_data(setting: Setting) -> Setting:
    """All of a setting that `rounds` asks for but X and y, which many settings share."""

    nothing: Any = None

    def bare(federation: Federation) -> Federation:
        source = replace(federation.source, X=nothing, y=nothing, client=None)
        return replace(federation, source=source, parameters={})

    train, unseen = bare(setting.federation), setting.unseen
    tested = unseen and (bare(unseen[0]), unseen[1])
    return replace(setting, whole=train, federation=train, unseen=tested, loader=Loader())


def with_data(setting: Setting, X: Array, y: Array) -> Setting:
    """The setting that `without_data` was given, as far as `rounds` asks for it."""

    def full(federation: Federation) -> Federation:
        return replace(federation, source=replace(federation.source, X=X, y=y))

    train, unseen = full(setting.federation), setting.unseen
    tested = unseen and (full(unseen[0]), unseen[1])
    return replace(setting, whole=train, federation=train, unseen=tested)


def died(lost: Sequence[Book], error: BaseException) -> FedrefError:
    """One line that says what a dead worker may have been at work on."""
    names = " or ".join(book.unit.name for book in lost)
    return FedrefError(f"the worker with {names} died ({error})")


def leave(books: Iterable[Book]) -> None:
    for book in books:
        book.leave()
