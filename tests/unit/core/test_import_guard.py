"""The guard against another package called supervision."""

import os
import subprocess
import sys
from pathlib import Path

from dart.core.import_guard import EXIT_CONFIGURATION, HOME, complaint, imported_from

GUARD = "from dart.core.import_guard import require_own_supervision as guard; guard(); print('passed')"


def guarded(*search_path: Path) -> subprocess.CompletedProcess[str]:
    """Run the guard in a process whose first import locations are these."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, search_path))}
    command = [sys.executable, "-P", "-c", GUARD]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)


def test_our_own_package_passes() -> None:
    assert complaint(imported_from("supervision"), HOME) is None
    assert guarded(HOME).stdout == "passed\n"


def test_a_foreign_package_ends_with_78_its_path_and_the_way_out(tmp_path: Path) -> None:
    foreign = tmp_path / "supervision" / "__init__.py"
    foreign.parent.mkdir()
    foreign.write_text("raise RuntimeError('the guard must not import what it looks at')")

    ended = guarded(tmp_path, HOME)

    assert ended.returncode == EXIT_CONFIGURATION == 78
    assert str(foreign) in ended.stderr
    assert "pip uninstall supervision" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_folder_left_behind_by_an_uninstall_is_not_taken_for_the_package() -> None:
    text = complaint(None, Path("/home/project"))

    assert text is not None
    assert "is missing" in text
    assert "/home/project/supervision" in text
