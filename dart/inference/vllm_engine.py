"""The engine that runs a checkpoint on vLLM.

The engine takes token ids and screenshots and returns sampled token ids, with the log-probs and entropies of
the distribution from which they were drawn. vLLM batches the requests that are in progress. It caches its
results for the beginnings of prompts and for screenshots, so for the next step of an episode it computes only
what is new, until the oldest screenshot leaves the prompt. docs/engines.md gives the reason for each setting.
"""

import asyncio
import functools
import itertools
import os
import shutil
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import TimeoutError as NotInTime
from pathlib import Path
from typing import Any, TypeVar

# Read by vLLM when it is imported, and by the processes it spawns.
os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")  # its sampler never holds the whole distribution
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # engines would be bound to the same cores

from PIL import Image
from vllm import AsyncEngineArgs, SamplingParams, TokensPrompt
from vllm.exceptions import VLLMClientError
from vllm.lora.request import LoRARequest
from vllm.outputs import RequestOutput
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from actors.process import exit_reason_of
from dart.config.sections import RolloutSettings
from dart.core.types import GenerateRequest, Generation, VersionSpan
from dart.inference.engine_processes import (
    EngineDied,
    EngineWedged,
    Member,
    members_below,
    oom_kills,
    tie_spawned_processes,
    why_died,
    why_wedged,
)
from dart.inference.prompts import PendingRequest, Prompts
from dart.inference.protocol import (
    NO_BASE,
    NO_POINTER_ON_VLLM,
    NO_SMALL_POLICY_ON_VLLM,
    Engine,
    EngineError,
    Swap,
    Unanswerable,
)
from dart.inference.tensor_layout import layout_of, refuse_other_layout
from dart.inference.version_check import refuse_other_bytes, verify_policy
from dart.inference.vllm_outputs import AssembledAnswer, oldest, whole_answer
from dart.inference.vllm_passes import pass_tokens, requests_at_once
from dart.policy.adapter_files import ADAPTER_FOLDER, BasePolicy, OtherBase, base_of, fingerprint
from dart.policy.configuration import is_small_policy
from dart.policy.load import UnreadableCheckpoint, load_codec
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import UnsupportedCheckpoint
from dart.store.blobs import BlobStore
from dart.store.checkpoints import published_hashes

T = TypeVar("T")

START_DEADLINE_S = 900.0
"""Longest time in seconds for vLLM to start. The supervisor usually ends a slow start earlier
(`supervision.rollout_pool.start_deadline_s`)."""

ADAPTERS_AT_ONCE = 2
"""Largest number of adapters in one batch: that of new requests, and that of older ones."""

ADAPTERS_HELD = 4
"""Largest number of adapters that a worker keeps in memory."""

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM allows for `max_lora_rank`."""

READ_CHECK_S = 0.2
"""Interval in seconds at which the workers are asked whether they have read a version."""

PREPARE_DEADLINE_S = 60.0
CLOSE_S = 2.0

FIRST, IN_ORDER = -1, 0
"""Priorities of requests in vLLM: before all that wait, and in the order of arrival."""

NEVER = -100.0
"""Value that is added to the logit of a token that must not be sampled."""


class WorkerFailed(EngineError):
    """A worker of vLLM has raised an error. vLLM passes on its text only."""


class VllmEngine(Engine):
    """A vLLM engine with its processes and its policy version. Several threads may call it at once."""

    is_concurrent = True

    def __init__(
        self,
        folder: Path,
        version: int,
        *,
        rollout: RolloutSettings,
        prompt_spec: PromptSpec,
        screenshots: BlobStore,
        seed: int,
        log: Path,
        sockets: Path,
        adapter_rank: int = 0,
    ) -> None:
        """Start vLLM and wait until it can answer.

        prompt_spec    how an episode is put into a prompt, and the largest length of an answer
        screenshots    blobs with the screenshots of requests
        log            new file for the output of the engine's processes
        sockets        folder for the sockets to these processes; it is emptied first
        adapter_rank   rank of the adapters if versions are adapters; 0: versions are whole policies
        raises         CorruptCheckpoint, CheckpointError or EngineError
        """
        verify_policy(folder, version)
        if is_small_policy(folder):
            raise UnsupportedCheckpoint(NO_SMALL_POLICY_ON_VLLM)
        self._rollout = rollout
        codec = load_codec(folder, prompt_spec)
        if codec.pointer is not None:
            raise UnsupportedCheckpoint(NO_POINTER_ON_VLLM)
        self._prompts = Prompts(codec, screenshots)
        self._answer_tokens = prompt_spec.context.answer_tokens
        self._layout = layout_of(folder)
        self._base_sha256 = fingerprint(folder) if adapter_rank else ""
        self._folder = folder
        self._adapter: LoRARequest | None = None
        """The adapter for new requests; None: the weights of the engine. Requests in progress keep theirs."""
        self._log = log
        self._ids = itertools.count()
        self._members: tuple[Member, ...] = ()
        self._killed_before = oom_kills()
        tie_spawned_processes(log)
        make_socket_folder(sockets)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="vllm").start()
        args = engine_args(folder, rollout, prompt_spec, seed, adapter_rank)
        try:
            self._llm: Any = self._wait("no engine", self._begin(args), START_DEADLINE_S)
        except (RuntimeError, ValueError, OSError) as failure:
            raise EngineDied(self._why_died() + f" ({failure})") from failure
        self._members = members_below(process.pid for process in self._cores())
        self._wait("no worker", self._take_over(version, "dartrl_begin"), PREPARE_DEADLINE_S)
        self.version = version

    # ---- answers ----

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """Return one answer for each request, sampled at its temperature (0: greedy, with log-probs of 0).

        Raises Unanswerable if a screenshot is missing or the prompt leaves no room for an answer, EngineDied
        if a process has ended, and EngineWedged if no answer comes in time.
        """
        asked = [self._prompts.pending(request) for request in requests]
        for one in asked:
            self._refuse_without_room(one)
        adapter = self._adapter
        work = self._sample(asked, self._answer_tokens, adapter)
        rollout = self._rollout
        limit_s = rollout.answer_deadline_s + rollout.load_deadline_s  # weights may change meanwhile
        answers = self._wait("no whole answer", work, limit_s)
        return [self._generation(one, sampled, adapter) for one, sampled in zip(asked, answers, strict=True)]

    def prove(self, probe: GenerateRequest) -> int:
        """Sample one token of an answer to the probe, and return the version that sampled it.

        The probe passes the requests that wait in vLLM, because a long queue does not mean a wedged engine.
        """
        adapter = self._adapter
        work = self._sample([self._prompts.pending(probe)], 1, adapter, FIRST)
        [sampled] = self._wait("no token", work, self._rollout.vllm.health_deadline_s)
        return oldest(_spans(sampled, adapter))

    async def _sample(
        self, asked: list[PendingRequest], limit: int, adapter: LoRARequest | None, priority: int = IN_ORDER
    ) -> list[AssembledAnswer]:
        pieces = [functools.partial(self._piece, one, adapter, priority=priority) for one in asked]
        return await asyncio.gather(*(whole_answer(piece, limit) for piece in pieces))

    async def _piece(
        self,
        asked: PendingRequest,
        adapter: LoRARequest | None,
        so_far: Sequence[int],
        limit: int,
        priority: int = IN_ORDER,
    ) -> RequestOutput:
        prompt = TokensPrompt(
            prompt_token_ids=[*asked.prompt.token_ids, *so_far],
            multi_modal_data={"image": [Image.fromarray(screen.pixels) for screen in asked.screens]},
            multi_modal_uuids={"image": [screen.sha256 for screen in asked.screens]},
        )
        how = SamplingParams(
            temperature=asked.request.temperature,
            max_tokens=limit,
            stop_token_ids=list(self._prompts.codec.end_ids),
            logprobs=0,  # of the sampled token alone
            logit_bias=dict.fromkeys(self._prompts.codec.never_sampled, NEVER),
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        try:
            async for output in self._llm.generate(
                prompt, how, f"{next(self._ids)}", lora_request=adapter, priority=priority
            ):
                last: RequestOutput = output
        except VLLMClientError as refusal:
            raise Unanswerable(f"vLLM refuses the request: {refusal}") from refusal
        return last

    def _refuse_without_room(self, asked: PendingRequest) -> None:
        """Raise Unanswerable if a prompt with the longest possible answer exceeds `rollout.vllm.max_tokens`.

        vLLM would cut off such an answer. It could not be parsed, and the policy would get the reward 0.
        """
        most = self._rollout.vllm.max_tokens
        if asked.tokens + self._answer_tokens > most:
            raise Unanswerable(
                f"a prompt of {asked.tokens} tokens with {len(asked.screens)} screenshots leaves no room for "
                f"{self._answer_tokens} tokens of answer in rollout.vllm.max_tokens = {most}: "
                "raise it, or lower context.screenshots, context.turns or context.answer_tokens"
            )

    def _generation(
        self, asked: PendingRequest, sampled: AssembledAnswer, adapter: LoRARequest | None
    ) -> Generation:
        self._count_image_tokens(asked, sampled)
        spans, tokens = _spans(sampled, adapter), (sampled.token_ids, sampled.logprobs, sampled.entropies)
        several = spans if len(spans) > 1 else ()
        return self._prompts.generation(asked, *tokens, oldest(spans), several)

    def _count_image_tokens(self, asked: PendingRequest, sampled: AssembledAnswer) -> None:
        """Raise EngineError unless vLLM counted as many tokens in the prompt as the trainer will count."""
        if sampled.prompt_tokens != asked.tokens:
            raise EngineError(
                f"expected {asked.tokens} tokens in a prompt with {len(asked.screens)} screenshots, vLLM "
                f"counted {sampled.prompt_tokens}: the checkpoint's processor does not fit its codec; use "
                "the processor files that belong to the checkpoint, and if its min_pixels is close to its "
                "max_pixels, set them further apart: vLLM resizes an image again that is outside of them"
            )

    # ---- versions ----

    def prepare(self, folder: Path, version: int, probe: GenerateRequest | None = None) -> Swap:
        """Check a version, and have each worker read and hash its files while the worker computes answers.

        The files are then in the page cache of the machine, from which the swap loads them. Answers that have
        begun continue with the new weights; if `rollout.weight_update` is "drain", the swap waits until they
        are complete.

        Raises CorruptCheckpoint, OtherLayout or UnreadableCheckpoint; the swap raises EngineDied if it fails.
        """
        verify_policy(folder, version)
        if (base := base_of(folder)) is not None:
            return self._prepare_adapter(folder, version, base)
        refuse_other_layout(self._layout, folder)
        read = self._wait("no weights read", self._read_ahead(folder), self._rollout.load_deadline_s)
        refuse_other_bytes(folder, published_hashes(folder), read)

        def swap() -> None:
            try:
                work = self._take_over(version, "dartrl_swap")
                self._wait("no new weights", work, self._rollout.load_deadline_s)
            except WorkerFailed as failure:  # the old weights are gone already
                raise EngineDied(
                    f"loading version {version} failed after weights were changed: {failure}"
                ) from failure
            self.version = version
            self._adapter, self._base_sha256 = None, ""  # the weights of the base policy are gone

        return swap

    def _prepare_adapter(self, folder: Path, version: int, base: BasePolicy) -> Swap:
        """Have the workers load an adapter, while the engine continues to answer, and return the swap.

        The swap pauses nothing: requests that begin after it use the adapter. Raises EngineError if the
        engine has no base policy, and OtherBase if the adapter is for another one.
        """
        if not self._base_sha256:
            raise EngineError(NO_BASE.format(folder=folder))
        if self._base_sha256 != base.sha256:
            raise OtherBase(folder, base, self._folder, self._base_sha256)
        adapter = LoRARequest(
            lora_name=f"v{version}", lora_int_id=version, lora_path=str(folder / ADAPTER_FOLDER)
        )
        self._wait("no adapter loaded", self._llm.add_lora(adapter), self._rollout.load_deadline_s)

        def swap() -> None:
            self._adapter, self.version = adapter, version

        return swap

    async def _read_ahead(self, folder: Path) -> list[Mapping[str, str]]:
        """Have all workers read a version, and return the sha256 of the files that each worker read.

        A worker computes no answers during a call, so the calls are short: one begins the reading, the others
        ask whether it is done. Raises UnreadableCheckpoint if a worker cannot read a file.
        """
        try:
            await self._call_workers("dartrl_read", str(folder))
            while True:
                read: list[Mapping[str, str] | None] = await self._call_workers("dartrl_was_read")
                if None not in read:
                    return [hashes for hashes in read if hashes is not None]
                await asyncio.sleep(READ_CHECK_S)
        except WorkerFailed as failure:
            raise UnreadableCheckpoint(
                f"a worker of the engine could not read {folder}: {failure}; check the disk or mount"
            ) from failure

    async def _take_over(self, version: int, method: str) -> None:
        """Pause vLLM, have the workers change to a version, clear the caches, and resume.

        method   what changes the workers. At the start of an engine it loads nothing, but vLLM's methods are
                 called as for each later version: one that is missing ends the engine before its first answer
        """
        # Not "keep": kept requests have to be computed again, and vLLM's workers may lack their screenshots.
        await self._llm.pause_generation(
            mode="wait" if self._rollout.weight_update == "drain" else "abort", clear_cache=False
        )
        await self._call_workers(method)
        # Cached results of the old weights are deleted. Preprocessed screenshots stay, because they do not
        # depend on the weights.
        if not await self._llm.reset_prefix_cache():
            raise EngineDied("vLLM did not clear its prefix cache, which holds results of the old weights")
        await self._llm.reset_encoder_cache()
        await self._llm.update_weight_version(str(version))
        await self._llm.resume_generation()

    # ---- life ----

    def check_alive(self) -> None:
        """Raise EngineDied, with the reason, if a process of the engine has ended."""
        if not all(member.is_there for member in self._members):
            raise EngineDied(self._why_died())

    def close(self) -> None:
        """End the processes of the engine. A process that does not end is killed when this process ends."""
        self._llm.shutdown(timeout=CLOSE_S)

    async def _begin(self, args: AsyncEngineArgs) -> Any:
        return AsyncLLM.from_engine_args(args)

    async def _call_workers(self, method: str, *args: str) -> list[Any]:
        """Call a method of every worker, and return the results. Raises WorkerFailed if a worker raises."""
        try:
            results: list[Any] = await self._llm.collective_rpc(method, args=args)
        except EngineDeadError:
            raise
        except Exception as failure:  # vLLM raises no narrower class
            raise WorkerFailed(str(failure)) from failure
        return results

    def _wait(self, missing: str, work: Coroutine[Any, Any, T], deadline_s: float) -> T:
        """Run a coroutine in the engine's event loop, and return its result. Call it from other threads only.

        missing   what did not come, for the message if there is no result in time, such as "no token"
        raises    EngineDied if a process has ended, EngineWedged if there is no result in time
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(deadline_s)
        except NotInTime as late:
            future.cancel()
            raise EngineWedged(why_wedged(missing, self._members, deadline_s, self._log)) from late
        except EngineDeadError as dead:
            raise EngineDied(self._why_died()) from dead

    def _why_died(self) -> str:
        """Return why the engine died. Exit codes are known only of engine cores, this process's children."""
        gone = tuple(member for member in self._members if not member.is_there)
        exits = {
            core.pid: exit_reason_of(core.exitcode) for core in self._cores() if core.exitcode is not None
        }
        return why_died(gone, exits, oom_kills() - self._killed_before, self._log)

    def _cores(self) -> Sequence[Any]:
        llm = getattr(self, "_llm", None)
        return () if llm is None else llm.engine_core.resources.engine_manager.processes


def lora_rank_of_vllm(rank: int) -> int:
    """Return the smallest of `LORA_RANKS` that is at least `rank`. Raises UnsupportedCheckpoint."""
    if rank > LORA_RANKS[-1]:
        raise UnsupportedCheckpoint(
            f"vLLM loads adapters of rank {LORA_RANKS[-1]} at most, training.lora.rank is {rank}: lower the "
            'rank, or set training.lora.publish = "merged"'
        )
    return next(one for one in LORA_RANKS if one >= rank)


def make_socket_folder(sockets: Path) -> None:
    """Make an empty folder, and set the environment variable that makes vLLM put its sockets there."""
    shutil.rmtree(sockets, ignore_errors=True)
    sockets.mkdir(mode=0o700, parents=True)
    os.environ["VLLM_RPC_BASE_PATH"] = str(sockets)


def _spans(sampled: AssembledAnswer, adapter: LoRARequest | None) -> tuple[VersionSpan, ...]:
    """Return which version sampled which tokens of an answer.

    vLLM reports versions of whole policies only. With an adapter, the adapter sampled all tokens.
    """
    if adapter is None:
        return sampled.spans()
    return (VersionSpan(version=adapter.lora_int_id, end=len(sampled.token_ids)),)


def engine_args(
    folder: Path, rollout: RolloutSettings, prompt_spec: PromptSpec, seed: int, adapter_rank: int = 0
) -> AsyncEngineArgs:
    """Return the arguments with which vLLM is started, after setting environment variables that vLLM reads.

    adapter_rank   rank of the adapters if versions are adapters; 0: versions are whole policies
    """
    settings = rollout.vllm
    on_cpu = current_platform.is_cpu()
    is_eager = settings.eager or on_cpu
    if on_cpu:
        os.environ["OMP_NUM_THREADS"] = str(rollout.threads)
    if is_eager:
        os.environ["TORCH_COMPILE_DISABLE"] = "1"  # otherwise some functions are compiled at their first use
    return AsyncEngineArgs(
        model=str(folder),
        trust_remote_code=False,
        dtype=settings.dtype,
        seed=seed,
        max_model_len=settings.max_tokens,
        max_num_seqs=requests_at_once(rollout),
        # On CPUs vLLM's own number, a fourth of it: the probe waits for the end of a pass.
        max_num_batched_tokens=None if on_cpu else pass_tokens(rollout),
        scheduling_policy="priority",  # the probe passes the prompts that wait
        generation_config="vllm",  # the codec says where an answer ends, not a file of the checkpoint
        limit_mm_per_prompt={"image": prompt_spec.context.screenshots, "video": 0},
        logprobs_mode="processed_logprobs",
        enforce_eager=is_eager,
        gpu_memory_utilization=settings.memory,
        kv_cache_memory_bytes=int(settings.cpu_cache_gib * 2**30) if on_cpu else None,
        tensor_parallel_size=settings.tensor_parallel,
        enable_lora=adapter_rank > 0,
        max_loras=ADAPTERS_AT_ONCE,
        max_cpu_loras=ADAPTERS_HELD,
        max_lora_rank=lora_rank_of_vllm(adapter_rank),
        worker_extension_cls="dart.inference.vllm_worker.DartWorker",
        disable_log_stats=True,
    )
