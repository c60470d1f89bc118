"""What docs/certificate.md says can be typed works as it says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fupareto.evidence import load, schema

PAGE = (Path(__file__).parents[2] / "docs/certificate.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_hashes_without_fupareto(run: Path) -> None:
    *_, code = blocks("python")

    def check() -> int:
        return subprocess.run([sys.executable, "-c", code], cwd=run, capture_output=True).returncode

    assert check() == 0
    (run / "rounds.jsonl").write_text("")
    assert check() == 1


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="OpenSSH is not installed")
def test_signing_with_openssh(run: Path, tmp_path: Path) -> None:
    env = {**os.environ, "HOME": str(tmp_path)}
    (tmp_path / ".ssh").mkdir(mode=0o700)
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / ".ssh/id_ed25519")]
    subprocess.run(key, check=True, capture_output=True)
    signing, checking = blocks("sh")

    def shell(code: str) -> int:
        return subprocess.run(["bash", "-ec", code], cwd=run, env=env, capture_output=True).returncode

    assert shell(signing) == 0
    assert shell(checking) == 0
    whole = (run / "certificate.json").read_bytes()
    (run / "certificate.json").write_bytes(whole.replace(b'"complete"', b'"Complete"', 1))
    assert shell(checking) != 0


def test_every_key_is_described(run: Path) -> None:
    table = PAGE[PAGE.index("| key | what |") :]
    found = load(run / "certificate.json")
    keys = {*schema.ORDER, *found["kept"], *found["federation"], *schema.FILES, "hint", "start", "forgotten"}
    assert [key for key in sorted(keys) if f"`{key}`" not in table] == []
