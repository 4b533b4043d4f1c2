"""Makes the engine that `rollout.engine` names. Only the library of that engine is imported."""

import zlib
from pathlib import Path

from actors.runtime import Identity
from dart.config.config import Config
from dart.core.run_directory import RunPaths
from dart.inference.protocol import Engine
from dart.store.blobs import BlobStore

SOCKETS = "engine-"
"""Prefix of the name of an engine's socket folder. The number of its actor's slot follows."""


def make_engine(
    config: Config,
    version: int,
    folder: Path,
    screenshots: BlobStore,
    identity: Identity,
    *,
    takes_adapters: bool = False,
) -> Engine:
    """Make the engine of a rollout actor. The engine answers with a version of the policy.

    version          number of the version
    folder           folder on this machine with the checkpoint of the version
    screenshots      blobs with the screenshots of requests
    identity         identity of the rollout actor
    takes_adapters   whether later versions are adapters of the policy in `folder`
    Raises CorruptCheckpoint or CheckpointError if the checkpoint cannot be read.
    """
    name, rollout = config.rollout.engine, config.rollout
    seed = zlib.crc32(f"{config.run.seed}/{identity.name}/{identity.incarnation}".encode())
    if name == "simulated":
        from dart.inference.simulated_engine import SimulatedEngine

        return SimulatedEngine(folder, version, simulated=config.simulation, seed=seed)
    if name == "oracle":
        from dart.inference.oracle_engine import OracleEngine

        return OracleEngine(folder, version, simulated=config.simulation, seed=seed)
    from dart.policy.prompt_spec import prompt_spec_of

    spec = prompt_spec_of(config.context)
    if name == "vllm":
        from dart.inference.vllm_engine import VllmEngine

        log = RunPaths(identity.run_dir).logs / f"{identity.name}.vllm.log"
        sockets = identity.mail_dir / f"{SOCKETS}{identity.slot}"
        return VllmEngine(
            folder,
            version,
            rollout=rollout,
            prompt_spec=spec,
            screenshots=screenshots,
            seed=seed,
            log=log,
            sockets=sockets,
            adapter_rank=config.training.lora.rank if takes_adapters else 0,
        )
    from dart.inference.transformers_engine import TransformersEngine

    return TransformersEngine(
        folder,
        version,
        screenshots=screenshots,
        threads=rollout.threads,
        seed=seed,
        prompt_spec=spec,
        takes_adapters=takes_adapters,
    )
