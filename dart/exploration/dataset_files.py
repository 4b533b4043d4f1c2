"""Writes grounding data from an exploration in ScreenSpot's format, one folder for each split."""

from collections.abc import Mapping
from pathlib import Path

from dart.core.boxes import Box
from dart.core.errors import UsageError
from dart.core.run_directory import RunPaths
from dart.core.screenspot import GroundingSample, save_image, write_screenspot
from dart.exploration.dataset import GraphQuery, Split, queries_of, split_of_shapes, targets
from dart.exploration.follower import GraphFollower
from dart.exploration.graph import Graph
from dart.store.blobs import BlobStore
from dart.store.reader import StoreReader
from dart.store.run_blobs import blobs_of


def write_dataset(
    folder: Path, graph: Graph, task_id: str, seed: int, screenshots: BlobStore, run: str
) -> Mapping[Split, int]:
    """Write the samples of a graph to folders in `folder`, and return the number of samples of each split.

    A split without samples gets no folder and is not in the result.

    seed   seed of the exploration, which also determines the splits
    run    name of the run in the provenance of the samples
    Raises UsageError for a graph without samples, and BlobDamage for a screenshot that is lost.
    """
    queries = queries_of(graph)
    if not queries:
        raise UsageError(
            f"the exploration graph of {task_id} gives no samples: it has {len(graph.nodes)} screens; "
            "explore with more actions, and set exploration.confirm_share above 0 to get outcome queries"
        )
    shapes = (graph.nodes[query.screen_id].screen.shape for query in queries)
    split = split_of_shapes(shapes, seed)
    written: dict[Split, int] = {}
    for part in Split:
        own = [query for query in queries if split[graph.nodes[query.screen_id].screen.shape] is part]
        if own:
            place = folder / part.value
            samples = [sample_of(place, query, graph, task_id, seed, screenshots, run) for query in own]
            written[part] = write_screenspot(place, samples)
    return written


def write_dataset_of_run(folder: Path, paths: RunPaths, task_id: str, seed: int) -> Mapping[Split, int]:
    """Write the samples of a task that a run has explored. Returns and raises the same as `write_dataset`."""
    with StoreReader(paths.record) as reader:
        follower = GraphFollower(reader, task_id, seed)
        follower.follow()
        return write_dataset(folder, follower.graph, task_id, seed, blobs_of(paths).screenshots, paths.title)


def sample_of(
    folder: Path, query: GraphQuery, graph: Graph, task_id: str, seed: int, screenshots: BlobStore, run: str
) -> GroundingSample:
    """Return a query as a grounding sample, after writing its screenshot to `folder`. Raises BlobDamage."""
    screen = graph.nodes[query.screen_id].screen
    provenance = {
        "run": run,
        "task": task_id,
        "seed": seed,
        "screen": query.screen_id,
        "shape": screen.shape,
        "target": query.target_id,
        "step": query.step_id,
    }
    return GroundingSample(
        image=save_image(folder, screenshots.read(screen.screenshot_sha256)),
        width_px=screen.width,
        height_px=screen.height,
        instruction=query.instruction,
        box=Box(*query.element.box),
        element_type="text" if query.element.has_text else "icon",
        source=task_id,
        kind=query.element.role,
        query=query.kind.value,
        elements=tuple(Box(*one.box) for one in targets(screen)),
        provenance=provenance,
    )
