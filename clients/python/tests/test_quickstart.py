"""Runs the quickstart of the README against a member, in an empty directory."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

BINARY = os.environ.get("LEASEHOLD_BINARY", "")


def _free() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"


@pytest.fixture
def member(tmp_path: Path) -> Iterator[str]:
    client, peer = _free(), f"http://{_free()}"
    log = (tmp_path / "log").open("w")
    process = subprocess.Popen(
        [
            BINARY, "serve", "--data-dir", str(tmp_path / "data"),
            "--listen-client-urls", f"http://{client}", "--advertise-client-urls",
            f"http://{client}", "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}",
        ],
        stdout=log, stderr=log,
    )  # fmt: skip
    yield client
    process.kill()
    process.wait()
    log.close()


@pytest.mark.skipif(not BINARY, reason="LEASEHOLD_BINARY is not set")
def test_quickstart(member: str, tmp_path: Path) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    program = "\n".join(re.findall(r"```python\n(.*?)```", readme, re.DOTALL))
    assert program.count("127.0.0.1:2379") == 2
    file = tmp_path / "quickstart.py"
    file.write_text(program.replace("127.0.0.1:2379", member))
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr + (tmp_path / "log").read_text()[-2000:]
    assert "step 2 with token" in done.stdout
    assert re.search(r"led with token \d+\n$", done.stdout)
    print(f"{time.monotonic() - began:.1f} s")
