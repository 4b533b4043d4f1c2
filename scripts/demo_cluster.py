"""`make cluster`: a run on three nodes of this machine, one of which is killed while you watch.

Starts PostgreSQL, an S3 server and a Ray cluster of three nodes, runs a configuration on them (the laptop
job, or the one that is named), kills the raylet of a node after some updates, and checks the data at the
end. Everything but the run directory is removed afterwards. Ctrl-C drains the run.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dart.cluster.local_cluster import local_cluster
from dart.core.run_directory import RunPaths
from dart.store.reader import StoreReader
from dart.testing.postgresql_server import running_server
from dart.testing.s3_server import BUCKET, running_s3_server

NODES = ("a", "b", "c")
POLL_S = 0.5
DATABASE = "dartrl"

CLUSTER_FILE = """\
run = "{run}"
record = "{record}"
blobs = "s3://{bucket}/demonstration"

[engine]
address = "{address}"
node_dir = "{node_dir}"

[place.environments]
needs = {{ browser_host = 0 }} # the nodes beside the control node

[place.rollout]
needs = {{ browser_host = 0 }}

[set.run]
cache_bytes = 1_000_000_000 # of each node, all on one disk
"""


def main() -> int:
    """Run the demonstration, and return the exit code."""
    options = _options()
    with (
        tempfile.TemporaryDirectory(prefix="dartrl-cluster-") as folder,
        running_server() as postgresql,
        running_s3_server() as s3,
        local_cluster(*NODES, browser_host=1) as cluster,
    ):
        os.environ.update(s3.variables)
        file = Path(folder) / "cluster.toml"
        file.write_text(
            CLUSTER_FILE.format(
                run=options.run,
                record=postgresql.make_database(DATABASE),
                bucket=BUCKET,
                address=cluster.address,
                node_dir=folder,
            )
        )
        words = [str(file), "--run-dir", str(options.run_dir)]
        words += [word for value in options.values for word in ("--set", value)]
        _dartrl("up", *words, "--dry-run")
        up = subprocess.Popen([sys.executable, "-m", "dart", "up", *words])
        try:
            _await_updates(options.run_dir, up, options.kill_after)
            if up.poll() is None and not options.keep_nodes:
                _say(f"killing the raylet of node {NODES[-1]}")
                cluster.kill(NODES[-1])
                _watch(options.run_dir, up)
            code = up.wait()
        except KeyboardInterrupt:
            code = up.wait()  # the run got the signal, too, and drains
        checked = _dartrl("doctor", "--data", "--run-dir", str(options.run_dir))
    return code or checked


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", default="laptop", help="a run file, or the name of a bundled configuration")
    parser.add_argument("--run-dir", type=Path, default=Path("runs/cluster"), help="a new run directory")
    parser.add_argument("--keep-nodes", action="store_true", help="kill no node")
    parser.add_argument("--kill-after", type=int, default=1, metavar="UPDATES", help="default: 1")
    parser.add_argument(
        "--set", action="append", default=[], dest="values", metavar="KEY=VALUE", help="for `dartrl up`"
    )
    return parser.parse_args()


def _await_updates(run_dir: Path, up: "subprocess.Popen[bytes]", number: int) -> None:
    """Wait until the run has made so many updates, or has ended."""
    while up.poll() is None and _updates(run_dir) < number:
        time.sleep(POLL_S)


def _updates(run_dir: Path) -> int:
    paths = RunPaths(run_dir.resolve())
    if not paths.config.exists() or not paths.board.exists():
        return 0
    with StoreReader(paths.record) as reader:
        newest = reader.latest_version()
    return newest.version if newest else 0


def _watch(run_dir: Path, up: "subprocess.Popen[bytes]") -> None:
    """Show the tree of the run until the shards of the lost node are elsewhere."""
    time.sleep(10.0)
    if up.poll() is None:
        _dartrl("tree", "--run-dir", str(run_dir))


def _dartrl(*words: str) -> int:
    _say(f"dartrl {' '.join(words)}")
    return subprocess.run([sys.executable, "-m", "dart", *words], check=False).returncode


def _say(text: str) -> None:
    print(f"--- {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
