"""Second tier: the commands of docs/serving.md, one after another in a shell, on a tiny job."""

import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import write_tuned

pytestmark = pytest.mark.real

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "serving.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_every_command_of_the_page_runs_and_the_service_is_the_job(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl on this machine")
    write_tuned(tmp_path, "full")
    shutil.move(tmp_path / "full", tmp_path / "job")
    script = "\n".join(["set -e", "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT", *COMMANDS])
    # The service of another test may have the usual port.
    script = script.replace("127.0.0.1:8000", f"127.0.0.1:{(port := free_port())}")
    script = script.replace("--port 8000", f"--port {port}")
    assert script.count("adiabat ") == PAGE.count("\nadiabat ")
    home = Path(sys.executable).parent
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"PATH": f"{home}:/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    log = (tmp_path / "server.log").read_text(encoding="utf-8")
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}\n{log}"
    assert ran.stdout.startswith('{"status":"ok"')
    vectors = json.loads((tmp_path / "vectors.json").read_text(encoding="utf-8"))
    assert len(vectors["data"]) == 1
    assert len(json.loads((tmp_path / "hits.json").read_text(encoding="utf-8"))["hits"]) == 5
    assert json.loads((tmp_path / "replaced.json").read_text(encoding="utf-8"))["replaced"] is True
    readings = (tmp_path / "watched" / "readings.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(row)["alarm"] for row in readings] == [False, False]
    assert (tmp_path / "tower" / "config.json").is_file()
