"""A worker outlives a Redis that is lost at any of the commands it sends.

RQ waits for Redis in one place only, where it takes a job from the queue: a loss anywhere else ended the worker.
"""

import logging

import django_rq
import pytest
from redis.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError

from tests.testapp.agents import helper
from turnkit_django.dispatch import Worker, rq
from turnkit_django.testing import assert_clean, text

MANY = 15
LOST_FOR = 20
"""Commands in a row: redis-py itself repeats one."""


class Loss:
    """Redis is lost at the `nth` command from the moment on that the worker listens to signals."""

    nth = 0
    is_over = False

    def note(self) -> None:
        self.nth -= 1
        if -LOST_FOR < self.nth <= 0:
            self.is_over = True
            raise RedisConnectionError("Connection closed by server.")


class Losing(Worker):
    loss = Loss()

    def subscribe(self) -> None:
        """The channel of RQ's commands has a thread of its own, which may take a second to end."""

    def _install_signal_handlers(self) -> None:
        send = AbstractConnection.send_packed_command

        def send_or_lose(connection: AbstractConnection, *args: object, **options: object) -> None:
            self.loss.note()
            send(connection, *args, **options)

        self.monkeypatch.setattr(AbstractConnection, "send_packed_command", send_or_lose)

    def teardown(self) -> None:
        self.monkeypatch.undo()
        super().teardown()


def run_losing(nth: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a worker that empties the queue sent so many commands."""
    worker = Losing([django_rq.get_queue("turnkit")], connection=django_rq.get_connection("turnkit"))
    worker.monkeypatch, worker.loss = monkeypatch, Loss()
    worker.loss.nth = nth
    worker.work(burst=True, logging_level="WARNING")
    return worker.loss.is_over


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("empty_redis")
def test_a_worker_outlives_a_loss_of_redis_at_any_command(turnkit_model, caplog, monkeypatch):
    turnkit_model(lambda _: text("hello"))
    monkeypatch.setattr(rq, "_PAUSE_SECONDS", 0.01)
    lost, is_over = 0, True
    while is_over:
        turn = helper.conversation().submit("hello")
        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
            is_over = run_losing(lost + 1, patch)
        assert "quitting" not in caplog.text, f"the worker ended at command {lost + 1}"
        lost += is_over
    turn.refresh_from_db()
    assert turn.status == "completed"
    assert lost > MANY
    assert_clean()
