"""What a browser is started with."""

import tempfile
from pathlib import Path

import pytest

from dart.environments.browser.cdp import Browser
from dart.environments.faults import InfrastructureFault


async def test_a_browser_has_a_short_folder_for_its_socket_where_the_path_of_the_temporary_folder_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (long := tmp_path / ("long" * 30)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    executable = tmp_path / "browser"
    executable.write_text(f'#!/bin/sh\nprintf %s "$TMPDIR" >{tmp_path}/said\n')
    executable.chmod(0o700)

    browser = await Browser.launch(str(executable), tmp_path / "profile")
    with pytest.raises(InfrastructureFault):  # as soon as the browser has ended
        await browser.post("Browser.getVersion")
    await browser.close()

    assert (tmp_path / "said").read_text() == "/tmp"
