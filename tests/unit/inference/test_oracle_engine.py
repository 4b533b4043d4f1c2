"""The engine that plays scripts: it answers as they say, and gives up a share of the episodes."""

from pathlib import Path

from dart.config.sections import SimulationSettings
from dart.core.actions import parse_action
from dart.core.types import GenerateRequest
from dart.environments.desktop.tasks import instance_of, solution_of
from dart.inference.oracle_engine import OracleEngine

INSTRUCTION = instance_of("desktop/editor-append", 0).instruction


def engine(success: float) -> OracleEngine:
    return OracleEngine(
        Path("base"), 0, simulated=SimulationSettings(success=success), seed=0, wait=lambda seconds: None
    )


def request(history: tuple[str, ...] = (), instruction: str = INSTRUCTION) -> GenerateRequest:
    return GenerateRequest(
        screenshot_sha256="x",
        instruction=instruction,
        history=history,
        temperature=1.0,
    )


def answer(of: OracleEngine, *history: str, instruction: str = INSTRUCTION) -> str:
    (generation,) = of.generate([request(history, instruction)])
    return generation.answer


def test_a_script_is_played_to_its_end() -> None:
    oracle, history = engine(1.0), []
    for _ in solution_of(INSTRUCTION):
        history.append(answer(oracle, *history))
    assert [parse_action(said) for said in history] == list(solution_of(INSTRUCTION))


def test_a_share_of_episodes_is_given_up_at_the_first_step() -> None:
    oracle = engine(0.7)
    first = [answer(oracle) for _ in range(400)]
    assert 0.2 < first.count("finished()") / len(first) < 0.4
    assert "finished()" not in [answer(oracle, "wait()") for _ in range(50)]


def test_an_instruction_of_no_script_is_answered_like_by_any_simulated_engine() -> None:
    assert answer(engine(1.0), instruction="Click the button.").startswith("click(")
