"""What `dartrl ground` does: train a grounding model or a verifier, measure a checkpoint. Imports torch."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from actors import ActorDied, ActorSystem
from dart.config.sections import EvaluationSettings, GroundingSettings
from dart.core.errors import ConfigurationError
from dart.core.screenspot import GroundingDataError, GroundingSample, read_screenspot
from dart.grounding.evaluation import AccuracyReport, ChooseCandidate, accuracy_report, ground_all
from dart.grounding.training import train_grounding
from dart.grounding.verification import Verified
from dart.grounding.verifier import ANSWERS, QUESTION, load_verifier, train_verifier
from dart.grounding.verifier_actor import NAME, START_DEADLINE_S, CannotVerify, VerifierActor, Verify
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.modeling import new_policy
from dart.policy.placement import ModelPlacement
from dart.policy.pointer.load import load_grounding
from dart.policy.pointer.model import INSTRUCTION, GroundingModel, Point
from dart.policy.pointer.settings import HeadSettings, write_settings
from dart.policy.small_policy import save_policy
from dart.policy.tokenizer import train_tokenizer
from dart.training.updates import Report
from supervision import supervised, worker

RESTART_DEADLINE_S, RETRY_S = 600.0, 0.5
"""How long, and how often, a query is repeated while the verifier is being restarted."""


# ---- training ----


def train_job(settings: GroundingSettings, out: Path, report: Report = print) -> GroundingModel:
    """Train a grounding model as `[grounding]` says, and write its checkpoint to the new folder `out`.

    Raises ConfigurationError without data or if training diverges, GroundingDataError, CheckpointError,
    UnsupportedCheckpoint.
    """
    return train_on(settings, _training_samples(settings), out, report)


def train_on(
    settings: GroundingSettings, samples: Sequence[GroundingSample], out: Path, report: Report = print
) -> GroundingModel:
    """Train a grounding model as `train_job` does, but on these samples; `grounding.data` is ignored."""
    model = _first_model(settings, samples)
    report(f"training the head {settings.head} on {len(samples)} samples")
    with _divergence_as_error():
        train_grounding(model, samples, settings, report)
    out.mkdir(parents=True)
    model.save(out)
    return model


def train_verifier_job(settings: GroundingSettings, out: Path, report: Report = print) -> None:
    """Train a verifier on the data of `[grounding]`, and write its checkpoint to the new folder `out`."""
    samples = _training_samples(settings)
    with _base(settings, [*_instructions(samples), QUESTION.replace(INSTRUCTION, "")]) as base:
        verifier = load_verifier(base, ModelPlacement(is_trained=True))
        report(f"training a verifier on {len(samples)} samples")
        with _divergence_as_error():
            train_verifier(verifier, samples, settings, report)
    out.mkdir(parents=True)
    verifier.save(out)


@contextmanager
def _divergence_as_error() -> Iterator[None]:
    """Raise ConfigurationError in place of FloatingPointError, which says that training diverged."""
    try:
        yield
    except FloatingPointError as error:
        raise ConfigurationError(f"{error}: change grounding.lr or grounding.seed") from error


def _training_samples(settings: GroundingSettings) -> list[GroundingSample]:
    if not settings.data:
        raise ConfigurationError(
            "grounding.data is empty: name folders in ScreenSpot's format; `python -m dart.grounding.pages "
            "OUT` makes such a folder from MiniWoB++ pages"
        )
    return [sample for path in settings.data for sample in read_screenspot(path)]


def _first_model(settings: GroundingSettings, samples: Sequence[GroundingSample]) -> GroundingModel:
    with _base(settings, _instructions(samples)) as base:
        model = load_grounding(base, settings.head, ModelPlacement(is_trained=True))
    model.settings = replace(model.settings, head=settings.head, labels=settings.labels)
    return model


@contextmanager
def _base(settings: GroundingSettings, texts: Sequence[str]) -> Iterator[Path]:
    """Yield the folder of the checkpoint to start from: `grounding.base`, or else a new small policy.

    The new small policy is in a temporary folder, which is deleted after the block.

    texts   texts on which the tokenizer of a new small policy is trained
    """
    if settings.base:
        yield Path(settings.base)
        return
    folder = Path(tempfile.mkdtemp(prefix="dartrl-ground-"))
    try:
        new_small_policy(texts, settings.seed, folder)
        yield folder
    finally:
        shutil.rmtree(folder)


def new_small_policy(texts: Sequence[str], seed: int, folder: Path) -> None:
    """Write an untrained small policy with a pointer head. Its tokenizer has one token for the word True and
    one for the word False, as a verifier needs them."""
    tokenizer = train_tokenizer([*texts, *ANSWERS * len(texts)], "pointer")
    model = new_policy(GuiPolicyConfig("pointer", vocab_size=tokenizer.get_vocab_size()), seed)
    save_policy(model, tokenizer, folder)
    write_settings(folder, HeadSettings())


def _instructions(samples: Sequence[GroundingSample]) -> list[str]:
    return [sample.instruction for sample in samples]


# ---- measuring ----


def evaluate_job(
    checkpoint: Path,
    data: Path,
    settings: EvaluationSettings,
    *,
    head: str | None = None,
    images: Path | None = None,
    k: int = 3,
    is_zoomed: bool = False,
    report: Report = lambda _: None,
) -> AccuracyReport:
    """Measure a checkpoint on a data set, with the verifier of the settings if they name one.

    Raises GroundingDataError, CheckpointError, UnsupportedCheckpoint.
    """
    samples = read_screenspot(data, images)
    model = load_grounding(checkpoint, head)  # type: ignore[arg-type]  # the command has checked it
    with _chooser(settings) as choose_candidate:
        found = ground_all(
            model, samples, k=k, is_zoomed=is_zoomed, choose_candidate=choose_candidate, report=report
        )
    return accuracy_report(
        model,
        found,
        checkpoint=str(checkpoint),
        data=str(data),
        k=k,
        is_zoomed=is_zoomed,
        verifier=settings.verifier,
    )


@contextmanager
def _chooser(settings: EvaluationSettings) -> Iterator[ChooseCandidate | None]:
    """Run the verifier's actor under a supervisor during the block, and yield the function that asks it.

    Yields None if the settings name no verifier.
    """
    if not settings.verifier:
        yield None
        return
    args = {"checkpoint": settings.verifier}
    child = worker(NAME, VerifierActor, args, start_deadline_s=START_DEADLINE_S)
    with supervised(child, start_deadline_s=START_DEADLINE_S) as system:
        yield lambda sample, candidates: ask_verifier(system, sample, candidates, settings.verifier_stop_at)


def ask_verifier(
    system: ActorSystem, sample: GroundingSample, candidates: Sequence[Point], stop_at: float
) -> Verified:
    """Return the verifier's choice; ask again while it is being restarted.

    Raises GroundingDataError when the verifier cannot use the screenshot, and ActorDied when it has not been
    restarted within RESTART_DEADLINE_S.
    """
    query = Verify(
        image=str(sample.image),
        instruction=sample.instruction,
        xs=tuple(x for x, _ in candidates),
        ys=tuple(y for _, y in candidates),
        stop_at=stop_at,
    )
    answer = _patient(system.ask, NAME, query)
    if isinstance(answer, CannotVerify):
        raise GroundingDataError(answer.reason)
    return Verified(answer.index, answer.score, answer.scored)


_patient = Retrying(
    retry=retry_if_exception_type(ActorDied),
    stop=stop_after_delay(RESTART_DEADLINE_S),
    wait=wait_fixed(RETRY_S),
    reraise=True,
)
"""Retries an ask while a verifier that has ended is restarted."""
