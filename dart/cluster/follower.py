"""The actor system of a node that is not the control node: `python -m dart.cluster.follower`.

The node's agent starts this process with a `FollowerSpec` on standard input; the kernel kills the process
when the agent ends. The process runs the actors that the control node places on this node. SIGTERM ends its
supervision tree, children first.
"""

import json
import os
import signal
import sys
from pathlib import Path
from threading import Event
from typing import Any

from actors.process import die_with_parent
from actors.scratch import held
from actors.system import ActorSystem, RootSpec
from dart.cluster.host_agent import FollowerSpec
from dart.cluster.node_folder import remove_idle_caches
from dart.config.config import kept_config
from dart.core.run_directory import RunPaths, keep_config, make_private, own_mail_dir
from dart.inference.gpu_leases import publish_gpus
from dart.inspect.health import ROOT_SILENT_S
from dart.run.listener import RunListener
from dart.run.machines import given_back
from supervision.child_spec import SupervisorFlags
from supervision.host_specs import follower_spec
from supervision.supervisor import supervisor_args

POLL_S = 0.5

MACHINE_RESTARTS, MACHINE_RESTARTS_WITHIN_S = 10, 60.0
"""Restart budget of the connection to the control node. If it is spent, the actor system of the node ends,
and the launcher starts a new one."""


def main() -> int:
    """Run the actor system until its tree has ended, and return the exit code.

    The code is 75 (EX_TEMPFAIL) if the tree failed or its root hung; standard error then has the reason.
    """
    spec = _spec_of(json.loads(sys.stdin.buffer.read()))
    die_with_parent(spec.agent_pid)
    paths = RunPaths(Path(spec.folder))
    make_private(paths.root, *paths.folders)
    keep_config(paths, spec.config_toml)
    publish_gpus(paths.root, spec.engine_gpus)
    with held(paths.root):
        remove_idle_caches(paths.root)
        return _run(spec, paths)


def _run(spec: FollowerSpec, paths: RunPaths) -> int:
    again = "the next start of the run on this node tries again"
    with (
        own_mail_dir(paths.root) as mail,
        given_back(kept_config(paths.config), paths, RunListener(), remedy=again),
        ActorSystem(paths.root, mail, root_of(spec), rows=spec.rows, prints_reports=False) as system,
    ):
        asked = Event()
        signal.signal(signal.SIGTERM, lambda *_: asked.set())
        while not system.wait(POLL_S):
            if asked.is_set():
                asked.clear()
                system.stop()
            if system.root_beat_age_s() > ROOT_SILENT_S:
                print(f"the root supervisor gave no sign of life for {ROOT_SILENT_S:g} s", file=sys.stderr)
                return os.EX_TEMPFAIL
        if failure := system.failure():
            print(failure, file=sys.stderr)
            return os.EX_TEMPFAIL
    return os.EX_OK


def root_of(spec: FollowerSpec) -> RootSpec:
    """Return the root of a node's tree.

    Its only child connects the node to the control node; the actors placed here are below that child.
    """
    machine = follower_spec(
        host=spec.host,
        leader=spec.leader,
        wire=Path(spec.wire),
        capabilities=spec.capabilities,
        longest_shutdown_s=spec.longest_shutdown_s,
    )
    flags = SupervisorFlags(max_restarts=MACHINE_RESTARTS, max_seconds=MACHINE_RESTARTS_WITHIN_S)
    return RootSpec(
        name="root", actor="supervision.supervisor:Supervisor", args=supervisor_args(flags, (machine,))
    )


def _spec_of(plain: dict[str, Any]) -> FollowerSpec:
    return FollowerSpec(**plain | {"engine_gpus": tuple(plain["engine_gpus"])})


if __name__ == "__main__":
    sys.exit(main())
