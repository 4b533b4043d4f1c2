"""Makes the engine that `rollout.engine` names. Only the library of that engine is imported."""

import zlib

from actors.runtime import Identity
from dart.config.config import Config
from dart.core.records import Version
from dart.core.run_directory import RunPaths
from dart.inference.protocol import Engine

SOCKETS = "engine-"
"""Prefix of the name of an engine's socket folder in the mail folder; the slot of its actor follows."""


def make_engine(config: Config, version: Version, identity: Identity) -> Engine:
    """Make the engine of the rollout actor `identity`, which answers with the checkpoint of a version.

    Raises CorruptCheckpoint or CheckpointError when the checkpoint cannot be read.
    """
    name, rollout, folder = config.rollout.engine, config.rollout, version.folder(identity.run_dir)
    seed = zlib.crc32(f"{config.run.seed}/{identity.name}/{identity.incarnation}".encode())
    if name == "simulated":
        from dart.inference.simulated_engine import SimulatedEngine

        return SimulatedEngine(folder, version.version, simulated=config.simulation, seed=seed)
    if name == "oracle":
        from dart.inference.oracle_engine import OracleEngine

        return OracleEngine(folder, version.version, simulated=config.simulation, seed=seed)
    from dart.policy.prompt_spec import prompt_spec_of

    spec = prompt_spec_of(config.context)
    if name == "vllm":
        from dart.inference.vllm_engine import VllmEngine

        log = RunPaths(identity.run_dir).logs / f"{identity.name}.vllm.log"
        sockets = identity.mail_dir / f"{SOCKETS}{identity.slot}"
        return VllmEngine(
            folder, version.version, rollout=rollout, prompt_spec=spec, seed=seed, log=log, sockets=sockets
        )
    from dart.inference.transformers_engine import TransformersEngine

    return TransformersEngine(folder, version.version, threads=rollout.threads, seed=seed, prompt_spec=spec)
