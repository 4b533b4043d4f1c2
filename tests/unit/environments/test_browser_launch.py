"""What a browser is started with."""

import tempfile
from pathlib import Path

import pytest

from dart.environments.browser.cdp import Browser
from dart.environments.faults import InfrastructureFault


async def said_by_browser(tmp_path: Path, command: str) -> str:
    """What a program in place of the browser says when it is started as one."""
    executable = tmp_path / "browser"
    executable.write_text(f"#!/bin/sh\n{command} >{tmp_path}/said\n")
    executable.chmod(0o700)
    browser = await Browser.launch(str(executable), tmp_path / "profile")
    with pytest.raises(InfrastructureFault):  # as soon as the browser has ended
        await browser.post("Browser.getVersion")
    await browser.close()
    return (tmp_path / "said").read_text()


async def test_a_browser_has_a_short_folder_for_its_socket_where_the_path_of_the_temporary_folder_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (long := tmp_path / ("long" * 30)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert await said_by_browser(tmp_path, 'printf %s "$TMPDIR"') == "/tmp"


async def test_a_browser_gets_no_environment_variable_that_may_hold_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = ("AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "HF_TOKEN", "DARTRL_POOL_TOKEN", "WANDB_API_KEY")
    for name in (*secrets, "FONTCONFIG_PATH"):
        monkeypatch.setenv(name, "hunter2")
    given = await said_by_browser(tmp_path, "env")
    assert [line for line in given.splitlines() if line.endswith("=hunter2")] == ["FONTCONFIG_PATH=hunter2"]
