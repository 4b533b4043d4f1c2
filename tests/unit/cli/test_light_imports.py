"""The command line answers at once: nothing heavy is loaded before a command needs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dart.core.run_directory import claimed

pytestmark = pytest.mark.slow

HEAVY = (
    *("torch", "transformers", "vllm", "matplotlib", "sqlalchemy", "thespian", "zmq", "numpy"),
    *("starlette", "uvicorn", "jinja2", "ray", "psycopg", "obstore"),
)


@pytest.mark.parametrize(
    "module",
    [
        *(
            "dart.cli.main",
            "dart.config.config",
            "dart.core.types",
            "dart.core.run_directory",
            "dart.preflight.requirements",
            "dart.inspect.live",
        ),
        *("dart.inspect.snapshot_reader", "dart.store.browse_queries", "dart.environments.actor"),
    ],
)
def test_importing_loads_no_heavy_library(module: str) -> None:
    program = f"import sys, {module}; print(*({HEAVY!r} & sys.modules.keys()))"
    program = program.replace(repr(HEAVY), repr(set(HEAVY)))

    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert ran.stdout.split() == []


@pytest.mark.parametrize("module", ["dart.run.app", "dart.store.store", "dart.web.app", "dart.run.daemon"])
def test_one_machine_needs_nothing_of_a_cluster(module: str) -> None:
    program = f"import sys, {module}; print(*({{'ray', 'psycopg', 'obstore'}} & sys.modules.keys()))"

    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert ran.stdout.split() == []


def test_the_configuration_is_loaded_only_by_commands_that_need_it() -> None:
    program = "import sys, dart.cli.main; print('pydantic' in sys.modules)"

    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert ran.stdout == "False\n"


@pytest.mark.parametrize("command", ["train", "up"])
def test_a_run_that_is_taken_is_refused_before_anything_heavy_is_loaded(tmp_path: Path, command: str) -> None:
    program = (
        "import sys, dart.cli.main as cli\n"
        f"sys.argv[1:] = [{command!r}, '--run-dir', {str(tmp_path / 'run')!r}, '--set', 'web.port=0']\n"
        "try:\n    cli.main()\n"
        "except SystemExit as ended:\n"
        "    print(ended.code, *({'dart.run.app', 'numpy', 'thespian'} & sys.modules.keys()))"
    )
    with claimed(tmp_path / "run", resume=False, config_toml=""):
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert f"is taken by process {os.getpid()}" in ran.stderr
    assert ran.stdout.split() == ["73"]
