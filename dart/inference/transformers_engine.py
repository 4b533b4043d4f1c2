"""The engine that runs a checkpoint in this process with the library transformers.

The engine takes screenshots and instructions and returns sampled answers with their log-probs. Training uses
the token ids that it returns and never tokenizes the text of an answer again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from dart.core.types import GenerateRequest, Generation
from dart.inference.prompts import PendingRequest, Prompts
from dart.inference.protocol import NO_BASE, Engine, EngineError, Swap, Unanswerable
from dart.inference.version_check import verify_policy
from dart.policy.adapter_files import OtherBase, base_of, fingerprint
from dart.policy.base import Policy
from dart.policy.load import load
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import PromptTooLong
from dart.policy.sampling import SampledAnswer
from dart.store.blobs import BlobStore


@dataclass(frozen=True, slots=True)
class Base:
    """The base policy, whose weights all versions share if versions are adapters."""

    folder: Path
    policy: Policy
    """It never computes, so one thread makes a version from it while another samples."""
    sha256: str


class TransformersEngine(Engine):
    """An engine that loads checkpoints with transformers. One thread calls `generate`, another may `prepare`.

    The probabilities of an answer do not depend on the other requests of its batch, apart from rounding.
    Random numbers come from one generator seeded with `seed`.
    """

    proves_ahead = True

    def __init__(
        self,
        folder: Path,
        version: int,
        *,
        screenshots: BlobStore,
        threads: int = 1,
        seed: int = 0,
        prompt_spec: PromptSpec | None = None,
        takes_adapters: bool = False,
    ) -> None:
        """
        screenshots      blobs with the screenshots of requests
        threads          number of threads that torch uses
        prompt_spec      how an episode is put into the prompt of a vision-language policy
        takes_adapters   whether versions are adapters of the policy in `folder`, which stays in memory
        """
        torch.set_num_threads(threads)
        self._generator = torch.Generator().manual_seed(seed)
        self._screenshots = screenshots
        self._prompt_spec = prompt_spec
        self._base: Base | None = None
        self._policy = self._checked(folder, version)
        if takes_adapters:
            self._base = Base(folder, self._policy.copy_sharing_weights(), fingerprint(folder))
        self._prompts = Prompts(self._policy.codec, screenshots)
        self.version = version

    def prepare(self, folder: Path, version: int, probe: GenerateRequest | None = None) -> Swap:
        """Check every file of a checkpoint against its hash, load it, and have it answer the probe.

        The old and the new policy are both in memory until the swap, which is an assignment. Raises
        EngineError if the checkpoint is an adapter and the engine has no base policy, OtherBase if the
        adapter is for another base policy.
        """
        policy = self._checked(folder, version)
        if probe is not None:
            asked = Prompts(policy.codec, self._screenshots).pending(probe)
            policy.sample([asked.prompt], [asked.screens], [probe.temperature], torch.Generator())

        def swap() -> None:
            self._policy = policy
            self._prompts.codec = policy.codec  # the screenshots stay in the cache
            self.version = version

        return swap

    def _checked(self, folder: Path, version: int) -> Policy:
        verify_policy(folder, version)
        wanted = base_of(folder)
        if wanted is None:
            return load(folder, self._prompt_spec)
        if self._base is None:
            raise EngineError(NO_BASE.format(folder=folder))
        if self._base.sha256 != wanted.sha256:
            raise OtherBase(folder, wanted, self._base.folder, self._base.sha256)
        # Imported here, because it imports transformers, which an engine of the small policy does without.
        from dart.policy.lora import with_shared_base

        return with_shared_base(self._base.policy, folder)

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """Return one answer for each request, sampled at its temperature (0: greedy, with log-probs of 0).

        Raises Unanswerable if a screenshot is missing, has another hash or cannot be read by the policy, or
        if a prompt is too long for it.
        """
        if not requests:
            return []
        asked = [self._prompts.pending(request) for request in requests]
        answers = self._sampled(asked)
        return [
            self._prompts.generation(
                one,
                answer.token_ids,
                answer.logprobs,
                answer.entropies,
                self.version,
                centres=answer.centres,
            )
            for one, answer in zip(asked, answers, strict=True)
        ]

    def _sampled(self, asked: Sequence[PendingRequest]) -> list[SampledAnswer]:
        """Sample one answer for each request. Raises Unanswerable if a prompt is too long for the policy."""
        try:
            return self._policy.sample(
                [one.prompt for one in asked],
                [one.screens for one in asked],
                [one.request.temperature for one in asked],
                self._generator,
            )
        except PromptTooLong as error:
            raise Unanswerable(str(error)) from error
