"""vLLM runs a tiny checkpoint for real (`make test-vllm`): what it records, and how weights change."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed here; `make test-vllm` has an environment for it")

from vllm.v1.engine.async_llm import AsyncLLM

from benchmarks.vllm_scene import Checkpoints, Screens, config_with, engine, scores
from dart.core.types import GenerateRequest, Generation, VersionSpan
from dart.inference import vllm_engine
from dart.inference.engine_processes import EngineDied
from dart.inference.protocol import Unanswerable
from dart.inference.tensor_layout import OtherLayout
from dart.inference.vllm_engine import VllmEngine
from dart.policy.load import UnreadableCheckpoint
from dart.store.checkpoints import CorruptCheckpoint
from tests.fault.actors_under_test import eventually

pytestmark = pytest.mark.timeout(900)

MOST_DIFFERENCE_NATS = 1e-3
"""Between an engine in float32 and transformers in float32, for every single token."""

IN_FLIGHT = 8
LONG_PROMPTS = 12
LONG_ANSWER = 100
VERSIONS = (1, 2, 3)

NEEDED_FOR_A_VERSION = (
    *("pause_generation", "reset_prefix_cache", "reset_encoder_cache"),
    *("update_weight_version", "resume_generation"),
)
"""Methods of vLLM, in the order in which the engine calls them."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vllm")


@pytest.fixture(scope="module")
def checkpoints(folder: Path) -> Checkpoints:
    return Checkpoints(folder)


@pytest.fixture(scope="module")
def screens(folder: Path) -> Screens:
    return Screens(folder / "blobs")


@pytest.fixture(scope="module")
def shared(checkpoints: Checkpoints, screens: Screens) -> Iterator[VllmEngine]:
    with engine(checkpoints.first, config_with(), screens) as made:
        yield made


def test_a_probe_does_not_wait_for_the_prompts_before_it(checkpoints: Checkpoints, screens: Screens) -> None:
    config = config_with(answer_tokens=1, max_batch=LONG_PROMPTS, vllm={"max_tokens": 4096})
    text = "click the next one, " * 700
    requests = [replace(screens.request(seed), instruction=f"{seed}: {text}") for seed in range(LONG_PROMPTS)]
    with engine(checkpoints.first, config, screens) as made, ThreadPoolExecutor(LONG_PROMPTS + 1) as pool:
        tokens_per_pass = made._llm.vllm_config.scheduler_config.max_num_batched_tokens
        assert made._prompts.pending(requests[0]).tokens > tokens_per_pass
        made._wait("no pause", made._llm.pause_generation(clear_cache=False), 60.0)
        asked = [pool.submit(made.generate, [request]) for request in requests]
        await_unfinished(made, LONG_PROMPTS)
        proof = pool.submit(made.prove, screens.request(LONG_PROMPTS))
        await_unfinished(made, LONG_PROMPTS + 1)
        made._wait("no requests go on", made._llm.resume_generation(), 60.0)
        proof.result()
        assert sum(not one.done() for one in asked) > LONG_PROMPTS / 2


@pytest.mark.parametrize("way", ["swap", "drain"])
def test_an_engine_calls_at_its_start_what_it_will_need_for_a_new_version(
    checkpoints: Checkpoints, screens: Screens, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    called: list[str] = []

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            called.append(name)
            return real(*args, **kwargs)

        return call

    for name in NEEDED_FOR_A_VERSION:
        monkeypatch.setattr(AsyncLLM, name, noted(name, getattr(AsyncLLM, name)))
    with engine(checkpoints.first, config_with(weight_update=way), screens) as made:
        assert called == list(NEEDED_FOR_A_VERSION)
        called.clear()
        made.load(checkpoints.publish(1), 1)
        assert set(called) == set(NEEDED_FOR_A_VERSION)


def test_what_it_records_is_what_transformers_computes(
    shared: VllmEngine, checkpoints: Checkpoints, screens: Screens
) -> None:
    requests = [screens.request(seed) for seed in range(8)]
    answers = shared.generate(requests)
    assert {answer.policy_version for answer in answers} == {shared.version}
    assert len({answer.token_ids for answer in answers}) == len(answers)
    found = scores(checkpoints.first, screens, requests, answers)
    assert float(found.differences.max()) < MOST_DIFFERENCE_NATS
    assert float((found.entropies - found.expected_entropies).abs().max()) < MOST_DIFFERENCE_NATS


def test_the_distribution_is_that_of_the_temperature_that_was_asked_for(
    shared: VllmEngine, checkpoints: Checkpoints, screens: Screens
) -> None:
    requests = [screens.request(seed, temperature=0.5) for seed in range(4)]
    found = scores(checkpoints.first, screens, requests, shared.generate(requests), temperature=0.5)
    assert float(found.differences.max()) < MOST_DIFFERENCE_NATS


def test_a_greedy_answer_is_always_the_same_and_has_no_log_probs(
    shared: VllmEngine, screens: Screens
) -> None:
    request = screens.request(0, temperature=0.0)
    first, second = shared.generate([request, request])
    assert first == second
    assert set(first.logprobs) == set(first.entropies) == {0.0}


def test_the_next_step_of_an_episode_computes_only_what_is_new(
    shared: VllmEngine, checkpoints: Checkpoints, screens: Screens
) -> None:
    request = screens.request(20)
    [answer] = shared.generate([request])
    following = screens.next(request, answer, 21)
    asked = shared._prompts.pending(following)
    output = shared._wait("no token", shared._piece(asked, None, (), 1), 60.0)
    assert output.num_cached_tokens > len(asked.prompt.token_ids) / 2
    [last] = shared.generate([following])
    found = scores(checkpoints.first, screens, [following], [last])
    assert [image.sha256 for image in last.images] == [request.screenshot_sha256, following.screenshot_sha256]
    assert float(found.differences.max()) < MOST_DIFFERENCE_NATS


def test_a_prompt_without_room_for_its_answer_is_refused_and_the_engine_goes_on(
    shared: VllmEngine, screens: Screens
) -> None:
    fits = screens.request(0, temperature=0.0)
    with pytest.raises(Unanswerable, match=r"raise it, or lower context\.screenshots"):
        shared.generate([fits, replace(fits, instruction="click the next one, " * 1000)])
    assert len(shared.generate([fits])[0].token_ids) > 0


def test_a_checkpoint_that_is_not_what_was_published_leaves_the_old_policy_as_it_was(
    shared: VllmEngine, checkpoints: Checkpoints, screens: Screens, tmp_path: Path
) -> None:
    request = screens.request(0, temperature=0.0)
    before = shared.generate([request])
    torn = checkpoints.publish(50)
    with (torn / "model.safetensors").open("r+b") as weights:
        weights.seek(-8, 2)
        weights.write(b"\xff" * 8)
    with pytest.raises(CorruptCheckpoint, match=r"model\.safetensors"):
        shared.load(torn, 50)
    assert shared.generate([request]) == before


def test_a_checkpoint_of_another_architecture_is_refused_before_a_weight_is_changed(
    shared: VllmEngine, checkpoints: Checkpoints, screens: Screens
) -> None:
    from safetensors.torch import load_file, save_file

    request = screens.request(0, temperature=0.0)
    before = shared.generate([request])
    other = checkpoints.publish(51)
    weights = load_file(other / "model.safetensors")
    name = next(name for name in weights if name.endswith("down_proj.weight"))
    save_file(weights | {name: weights[name][:-1].clone()}, other / "model.safetensors", {"format": "pt"})
    (other / "state.json").unlink()
    with pytest.raises(OtherLayout, match="down_proj"):
        shared.load(other, 0)
    assert shared.generate([request]) == before


def test_a_version_that_a_worker_cannot_read_leaves_the_old_policy(
    shared: VllmEngine, checkpoints: Checkpoints, screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = screens.request(0, temperature=0.0)
    before = shared.generate([request])
    lost = checkpoints.publish(52)
    delete = (lost / "model.safetensors").unlink
    monkeypatch.setattr(vllm_engine, "refuse_other_layout", lambda *_: delete())  # the actor has read it
    with pytest.raises(UnreadableCheckpoint, match=r"worker .* could not read .*v000052"):
        shared.prepare(lost, 52)
    assert shared.generate([request]) == before


def test_new_weights_are_served_whole_and_nothing_of_the_old_ones_is_left_in_a_cache(
    shared: VllmEngine, checkpoints: Checkpoints, screens: Screens
) -> None:
    requests = [screens.request(seed) for seed in range(4)]
    shared.generate(requests)  # their screenshots and prompts are known from now on
    version = shared.version + 1
    published = checkpoints.publish(version)
    shared.load(published, version)
    assert shared.prove(requests[0]) == version
    answers = shared.generate(requests)
    assert {answer.policy_version for answer in answers} == {version}
    assert float(scores(published, screens, requests, answers).differences.max()) < MOST_DIFFERENCE_NATS


def test_an_output_head_that_is_the_embedding_changes_along_with_it(screens: Screens, tmp_path: Path) -> None:
    tied = Checkpoints(tmp_path, is_tied=True)
    published = tied.publish(1)
    requests = [screens.request(seed) for seed in range(4)]
    with engine(tied.first, config_with(), screens) as made:
        for folder, version in ((tied.first, 0), (published, 1)):
            if version:
                made.load(folder, version)
            assert made.prove(requests[0]) == version
            found = scores(folder, screens, requests, made.generate(requests))
            assert float(found.differences.max()) < MOST_DIFFERENCE_NATS


def test_a_version_that_is_changed_before_the_swap_ends_the_engine_with_the_reason(
    checkpoints: Checkpoints, screens: Screens
) -> None:
    published = checkpoints.publish(1)
    with engine(checkpoints.first, config_with(), screens) as made:
        swap = made.prepare(published, 1)
        (published / "model.safetensors").touch()
        with pytest.raises(EngineDied, match=r"loading version 1 failed .*was changed or replaced after"):
            swap()


def test_weights_change_under_load_and_every_token_is_of_the_version_it_says(
    checkpoints: Checkpoints, screens: Screens
) -> None:
    requests = [screens.request(seed) for seed in range(IN_FLIGHT)]
    folders, answers = changed_under_load(checkpoints, screens, requests, "swap")
    assert any(len(answer.spans) > 1 for answer in answers)
    for request, answer in zip(requests, answers, strict=True):
        begin = 0
        for span in spans_in(answer):
            off = scores(folders[span.version], screens, [request], [answer]).differences[begin : span.end]
            assert float(off.max()) < MOST_DIFFERENCE_NATS
            begin = span.end


def test_a_draining_engine_ends_what_is_under_way_before_its_weights_change(
    checkpoints: Checkpoints, screens: Screens
) -> None:
    requests = [screens.request(seed) for seed in range(IN_FLIGHT)]
    folders, answers = changed_under_load(checkpoints, screens, requests, "drain")
    for request, answer in zip(requests, answers, strict=True):
        [span] = spans_in(answer)
        off = scores(folders[span.version], screens, [request], [answer]).differences
        assert float(off.max()) < MOST_DIFFERENCE_NATS


def test_an_adapter_is_loaded_beside_its_base_and_requests_under_way_keep_theirs(
    checkpoints: Checkpoints, screens: Screens
) -> None:
    requests = [screens.request(seed) for seed in range(IN_FLIGHT)]
    published = {version: checkpoints.publish_adapter(version) for version in VERSIONS}
    whole = {0: checkpoints.first} | {version: folders[1] for version, folders in published.items()}
    config = config_with(answer_tokens=LONG_ANSWER)
    answers: list[Generation] = []
    with (
        engine(checkpoints.first, config, screens, adapter_rank=4) as made,
        ThreadPoolExecutor(IN_FLIGHT) as pool,
    ):
        for version in VERSIONS:
            asked = [pool.submit(made.generate, [request]) for request in requests[: IN_FLIGHT // 2]]
            made.prove(requests[0])  # by then others have got tokens, too
            made.load(published[version][0], version)
            assert made.prove(requests[0]) == version
            answers += [one.result()[0] for one in asked]
        answers += made.generate(requests[: IN_FLIGHT // 2])
    assert [answer.policy_version for answer in answers] == [
        version for version in (0, *VERSIONS) for _ in requests[: IN_FLIGHT // 2]
    ]
    for number, answer in enumerate(answers):
        assert answer.spans == ()  # from one version, to its end
        request = requests[number % (IN_FLIGHT // 2)]
        found = scores(whole[answer.policy_version], screens, [request], [answer])
        assert float(found.differences.max()) < MOST_DIFFERENCE_NATS


def await_unfinished(made: VllmEngine, count: int) -> None:
    """Wait until the engine has so many requests."""
    llm = made._llm
    eventually(
        lambda: llm.get_num_unfinished_requests() == count,
        f"{count} requests are in vLLM",
        lambda: str(llm.get_num_unfinished_requests()),
        30.0,
    )


def changed_under_load(
    checkpoints: Checkpoints, screens: Screens, requests: list[GenerateRequest], way: str
) -> tuple[dict[int, Path], list[Generation]]:
    """New weights again and again while these requests are answered, every one of them."""
    folders = {0: checkpoints.first} | {version: checkpoints.publish(version) for version in VERSIONS}
    config = config_with(answer_tokens=LONG_ANSWER, weight_update=way)
    with engine(checkpoints.first, config, screens) as made, ThreadPoolExecutor(IN_FLIGHT) as pool:
        made.generate(requests)  # their prompts and screenshots are in the caches when they are asked again
        asked = [pool.submit(made.generate, [request]) for request in requests]
        for version in VERSIONS:
            made.prove(requests[0])  # by then others have got tokens, too
            made.load(folders[version], version)
        return folders, [one.result()[0] for one in asked]


def spans_in(answer: Generation) -> tuple[VersionSpan, ...]:
    return answer.spans or (VersionSpan(version=answer.policy_version, end=len(answer.token_ids)),)
