"""`vsetune serve`: it starts, answers and ends with Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import threading
import urllib.request

from vsetune.records.events import StudyRecord


def test_it_answers_until_ctrl_c(vsetune, opened) -> None:
    opened(StudyRecord("tiny", "f", {"baseline": "lmh"}))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have it ignored in the background
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    heard = []

    def look_and_interrupt() -> None:
        for _ in range(1000):
            try:
                heard.append(urllib.request.urlopen(f"http://127.0.0.1:{port}/studies/tiny", timeout=20).read())
                break
            except OSError:
                threading.Event().wait(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    looking = threading.Thread(target=look_and_interrupt)
    looking.start()
    said = vsetune("serve", "tiny", "--port", str(port))
    looking.join()
    signal.signal(signal.SIGINT, before)
    assert said.code == 0
    assert b"tiny" in heard[0]
    assert f"studies: http://127.0.0.1:{port}/" in said.lines[0]
    assert said.lines[-1] == "stopped"
