"""The small policy of the laptop job, as a `dart.policy.base.Policy`, and its files.

A checkpoint is one folder with configuration, weights and tokenizer, in the formats that transformers has for
them. transformers itself is not imported: with it, an engine takes more than twice the processor time and
110 MB more memory to start (docs/decisions/0005-laptop-policy.md).
"""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from dart.core.boxes import Box
from dart.core.types import Step
from dart.policy.base import Policy
from dart.policy.codec import GRID, PromptCodec
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.modeling import GuiPolicyModel, check_length
from dart.policy.pointer.patches import PatchGrid
from dart.policy.prefixes import PrefixCache, prefix_of
from dart.policy.protocols import ForeignPrompt, Prompt, PromptTooLong, Screen, check_patches
from dart.policy.sampling import Alike, AnswerScores, SampledAnswer, sample_after
from dart.policy.scoring import score_steps

WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"

BASELINE_HEAD = "coordinate_head"
"""Name of the part that grounding adds to the model (`dart.policy.pointer.small_grounding`), a baseline. Its
weights are left out when the policy is loaded."""


class SmallPolicy(Policy):
    """The model of `dart.policy.modeling` with its codec and its processor.

    Every weight is trained. Answers are sampled with kept prefixes, so a policy that has sampled must not be
    trained.
    """

    module: GuiPolicyModel
    codec: PromptCodec

    def __init__(self, folder: Path) -> None:
        """Load the model in evaluation mode. Raises OSError, ValueError or RuntimeError for damaged files."""
        self.module = _load_model(folder).eval()
        self._prefixes = PrefixCache(self.module)
        self._tokenizer = read_tokenizer(folder)
        self.codec = PromptCodec(self._tokenizer, self.module.config.image_tokens)

    def copy_sharing_weights(self) -> Self:
        made = super().copy_sharing_weights()
        made._prefixes = PrefixCache(made.module)  # a cache belongs to one thread
        return made

    @torch.inference_mode()
    def sample(
        self,
        prompts: Sequence[Prompt],
        screens: Sequence[Sequence[Screen]],
        temperatures: Sequence[float],
        generator: torch.Generator,
    ) -> list[SampledAnswer]:
        shown = [row[-1] for row in screens]
        pixels = {screen.sha256: torch.from_numpy(screen.pixels) for screen in shown}
        prefixes = [(prompt.token_ids, screen.sha256) for prompt, screen in zip(prompts, shown, strict=True)]
        out = self._prefixes.outputs(prefixes, pixels)
        return sample_after(self.module, out, temperatures, generator)

    def score(self, steps: Sequence[Step], screens: Mapping[str, Screen], temperature: float) -> AnswerScores:
        pixels = {sha256: torch.from_numpy(screen.pixels) for sha256, screen in screens.items()}
        alike = [self._same_element(step, screens[step.screenshot_sha256]) for step in steps]
        return score_steps(self.module, steps, pixels, temperature, alike)

    def _same_element(self, step: Step, screen: Screen) -> Alike:
        """Return the tokens that would have clicked the same element as a step's answer."""
        if step.box is None:
            return {}
        return self.codec.same_element(step.token_ids, Box(*step.box), screen.frame)

    def sort_key(self, step: Step) -> Any:
        """Return the screenshot and the prompt of a step, so that steps that share them are neighbours."""
        prompt, sha256 = prefix_of(step)
        return sha256, prompt

    def prefix_key(self, step: Step) -> Hashable:
        return prefix_of(step)

    def token_count(self, step: Step) -> int:
        return len(step.prompt_ids) + len(step.token_ids)

    def patch_count(self, step: Step) -> int:
        return int(self.module.config.patches)

    def patch_grid(self, screen: Screen) -> PatchGrid:
        return GRID

    def check_prompt(self, step: Step, screens: Mapping[str, Screen]) -> None:
        """Check the placeholders of a recorded step, its length, and the points of its answer.

        Raises ForeignPrompt.
        """
        config = self.module.config
        if (found := step.prompt_ids.count(config.image_token_id)) != config.image_tokens:
            raise ForeignPrompt(
                step,
                f"expected {config.image_tokens} image placeholders in its prompt, got {found}: another "
                "policy or an engine without a model made it",
            )
        try:
            check_length(step.prompt_ids, step.token_ids)
        except PromptTooLong as error:
            raise ForeignPrompt(step, str(error)) from error
        check_patches(step, self.codec.pointer, config.patches)

    def save(
        self, folder: Path, weights: Mapping[str, Tensor] | None = None, dtype: torch.dtype | None = None
    ) -> None:
        held = self.module.state_dict() if weights is None else dict(weights)
        _write(folder, self.module.config, held, dtype, self._tokenizer)


def load_codec(folder: Path) -> PromptCodec:
    """Load the codec of a checkpoint, without its model. Raises OSError or ValueError for damaged files."""
    return PromptCodec(read_tokenizer(folder), GuiPolicyConfig.read(folder).image_tokens)


def read_tokenizer(folder: Path) -> Tokenizer:
    """Read the tokenizer of a checkpoint. Raises OSError or ValueError for a damaged file."""
    text = (folder / TOKENIZER_FILE).read_text(encoding="utf-8")
    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # tokenizers has no class of its own for what it cannot read
        raise ValueError(f"{TOKENIZER_FILE}: {error}") from error


def save_policy(model: GuiPolicyModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Write into a fresh folder everything that `SmallPolicy` needs. Not atomic."""
    _write(folder, model.config, model.state_dict(), None, tokenizer)


def _load_model(folder: Path) -> GuiPolicyModel:
    """Load the model with the precision in which its weights were written."""
    weights = load_file(folder / WEIGHTS_FILE)
    with torch.random.fork_rng(devices=[]):  # loading must not change the random numbers of a caller
        model = GuiPolicyModel(GuiPolicyConfig.read(folder))
    own = {name: weight for name, weight in weights.items() if not name.startswith(f"{BASELINE_HEAD}.")}
    model.load_state_dict(own, assign=True)
    return model


def _write(
    folder: Path,
    config: GuiPolicyConfig,
    weights: Mapping[str, Tensor],
    dtype: torch.dtype | None,
    tokenizer: Tokenizer,
) -> None:
    """Write the files of a checkpoint. `dtype` is the precision of the weights; None: the one they have."""
    written = {name: weight.detach().to(dtype).contiguous() for name, weight in weights.items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(written, folder / WEIGHTS_FILE, {"format": "pt"})
    held = next(iter(written.values())).dtype
    config.write(folder, str(held).removeprefix("torch."))
    # not tokenizer.save, which loses the number of an error of the system
    (folder / TOKENIZER_FILE).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
