"""How the commands of a user ask the service, on a machine on which it has run and is away."""

import json
import socket
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from hami_py import config
from hami_py.cli import hami
from hami_py.config import Settings
from hami_py.slices import SliceRequest, list_slices, open_new
from hami_py.slices import machine as client
from hami_py.slices.machine import SOCKET, USERS, Machine, NoAnswer, required_machine
from support.launcher import until


@pytest.fixture
def away(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """The settings of a user who has an older slice."""
    found = replace(settings, node_runtime=tmp_path / "machine")
    monkeypatch.setattr(config, "read", lambda: found)
    with closing(open_new(found, SliceRequest(["true"], name="older", keep=True))):
        pass
    (found.node_runtime / USERS).mkdir(parents=True)
    return found


COMMANDS = """\
run -- true
run --join train -- true
set train --gpumem 1GiB
rm train
ps
cdi
account
machine status
machine job end 17
"""


@pytest.mark.parametrize("words", COMMANDS.splitlines())
def test_all_commands_say_alike_that_the_service_is_away(
    away: Settings, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr(Machine.ask, "__kwdefaults__", {"wait_s": 0})
    monkeypatch.setattr(client, "PATIENCE_S", 0)
    done = CliRunner().invoke(hami, words.split())
    assert (
        "the service hami machine: it does not run; ask an administrator: "
        "`systemctl status hami-machine`"
    ) in f"{done.output} {done.exception}"
    assert done.exit_code
    assert ("older" in done.output) == (words == "ps"), "what can be listed is listed"


def test_a_command_waits_for_a_service_that_restarts(
    away: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, sleep = threading.Event(), time.sleep

    def pause(seconds: float) -> None:
        waits.set()
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", pause)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        found: list[list[str | None]] = []
        asks = threading.Thread(
            target=lambda: found.append([each.name for each in list_slices(away)])
        )
        asks.start()
        assert waits.wait(60), "there is no service"
        listener.bind(str(away.node_runtime / SOCKET))
        listener.listen()
        listener.settimeout(60)
        connection, _ = listener.accept()
        with connection:
            assert json.loads(connection.recv(1 << 10))["do"] == "list"
            connection.send(b'{"slices": [], "after": null}')
        until(lambda: bool(found), "it has the answer")
    assert found == [["older"]]


@pytest.mark.parametrize(
    ("do", "reads", "is_repeated"),
    [("create", False, True), ("create", True, False), ("job", False, True), ("job", True, True)],
)
def test_a_request_is_made_again_if_the_service_cannot_have_done_it(
    away: Settings, do: str, reads: bool, is_repeated: bool
) -> None:
    """The service is killed before or after it has read the first request."""
    asked = []

    def serve(listener: socket.socket) -> None:
        for number in range(1 + is_repeated):
            connection, _ = listener.accept()
            with connection:
                connection.recv(1, socket.MSG_PEEK)
                if reads or number:
                    asked.append(json.loads(connection.recv(1 << 10))["do"])
                if number:
                    connection.send(b"{}")

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(away.node_runtime / SOCKET))
        listener.listen()
        serving = threading.Thread(target=serve, args=(listener,))
        serving.start()
        if is_repeated:
            assert Machine(away.node_runtime).ask(do) == {}
        else:
            with pytest.raises(NoAnswer, match="closed the connection"):
                Machine(away.node_runtime).ask(do)
        serving.join(60)
    assert asked == [do] * (reads + is_repeated)


def test_a_machine_without_the_service_is_told_alike(settings: Settings, tmp_path: Path) -> None:
    without = replace(settings, node_runtime=tmp_path / "none")
    assert list_slices(without) == []
    with pytest.raises(NoAnswer, match="it does not run; ask an administrator"):
        required_machine(without)
