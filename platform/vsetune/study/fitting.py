"""Checks that every cell of a study fits its data set. They run before any trial and report all problems at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from vsetune.config.component_specs import LossSpec, NetworkSpec
from vsetune.config.sources.recipe import IngestRecipe, PixelsSpec, ScenesSource
from vsetune.config.sources.trial_inputs import DataSpec
from vsetune.config.study.cells import Cell, build_trial, candidates
from vsetune.config.study.study_spec import ScenesSpec, StudySpec
from vsetune.config.study.training import PhaseSpec, TrialSpec
from vsetune.data.batches.epoch_shards import epoch_size
from vsetune.data.batches.image_processors import require_processor
from vsetune.data.batches.pixels import require_photographs
from vsetune.data.captions.parses import phrase_codes, require_as_listed, word_heads
from vsetune.data.captions.word_pieces import WordPieces
from vsetune.data.making.data_place import finished
from vsetune.data.stored.dataset import Dataset, evaluated_split, further_tests
from vsetune.data.stored.shards import NO_FEATURES
from vsetune.errors import ConfigError, DataError, Problem, StudyConflict
from vsetune.home.addresses import is_remote
from vsetune.home.paths import remote_home, under_home
from vsetune.networks.vsepp.spec import VseppSpec
from vsetune.training.schedule import require_room_for_warmup, training_steps_per_epoch


def require_scenes(spec: StudySpec, *, where: str) -> None:
    """Checks that data at `data.path`, if there are any, are the data that `data.scenes` asks for.

    Makes nothing. Messages name the fields of the study file. ConfigError: the data cannot be made there.
    StudyConflict: other data are there.
    """
    assert spec.data.scenes is not None
    path = spec.data.path
    if is_remote(path) and not path.startswith(f"{remote_home()}/"):
        raise ConfigError(
            "VSE-S017", "{where}: data.scenes: can only be made in a local folder, got data.path {path}; remove "
            "scenes, or name a folder", where=where, path=path,
        )
    try:
        finished(scenes_recipe(".", spec.data.scenes), path)  # the output does not enter its identity
    except StudyConflict as error:
        raise StudyConflict(
            "VSE-S018", "{where}: data.scenes: {path} holds other data than these sizes and this seed give; name "
            "another data.path, delete that folder, or remove scenes to use what is there", where=where, path=path,
        ) from error


def scenes_recipe(output: str, sizes: ScenesSpec) -> IngestRecipe:
    """The recipe of the generated data that a study asks for."""
    source = ScenesSource.model_validate(sizes.to_plain())
    return IngestRecipe(name="scenes", output=output, source=source, features=PixelsSpec())


def require_fit(spec: StudySpec, cells: list[Cell], dataset: Dataset, *, where: str) -> None:
    """ConfigError with every problem of running the study on the data set. where: the beginning of its lines."""
    problems = list(_split_problems(spec, dataset, where))
    if not problems:
        problems += _evaluation_problems(spec, dataset, where)
        for cell in cells:
            problems += _cell_problems(spec, cell, dataset, f"{where}: cell {cell.name}")
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))


def require_readable(trial: TrialSpec, dataset: Dataset, *, where: str) -> None:
    """ConfigError with every reason why the trial's network, which is built already, cannot read the data set."""
    problems = list(_reading_problems(trial, dataset, where, is_trained=False))
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))


def _split_problems(spec: StudySpec, dataset: Dataset, where: str) -> Iterator[Problem]:
    """Missing splits. The default test split may be absent, as in many data sets; one that the file names may not."""
    data = spec.data
    wanted = {"train_split": data.train_split, "validation_split": data.validation_split}
    if data.test_split is not None and (
        "test_split" in data.model_fields_set or data.test_split in dataset.manifest.splits
    ):
        wanted["test_split"] = data.test_split
    for key, name in wanted.items():
        try:
            dataset.check_files([name])
        except DataError as error:
            yield error.problem.at(f"{where}: data.{key}")
    for name, test in data.tests.items():
        key, only = f"{where}: data.tests.{name}", data.model_copy(update={"tests": {name: test}})
        try:
            ((other, split),) = further_tests(only, dataset).values()
            other.check_files([split])
        except DataError as error:
            yield error.problem.at(key)
        else:
            got, need = (
                f"{found.regions} x {found.width} numbers by {found.manifest.features.extractor}"
                for found in (other, dataset)
            )
            if got != need:
                yield Problem.of(
                    "VSE-S088", "{where}: data set {data} has features of {got}, need {need}, as the data set of the "
                    "study; ingest it with the same features", where=key, data=other.path, got=got, need=need,
                )


def _evaluation_problems(spec: StudySpec, dataset: Dataset, where: str) -> Iterator[Problem]:
    """Problems that every trial would meet in its evaluation."""
    wanted, split = spec.evaluation, evaluated_split(spec.data, dataset)
    images = dataset.split(split).images
    yield from _ranking_problems(spec, dataset, where)
    yield from _protocol_problems(wanted.protocols, split, images, where)
    for k in wanted.srd_at:
        yield from _too_large(where, "evaluation.srd_at", k, split, images)
    if wanted.relevance is not None:
        from vsetune.data.captions.relevance_lists import relevant_pairs

        try:
            relevant_pairs(dataset, split, under_home(wanted.relevance))
        except DataError as error:
            yield error.problem.at(f"{where}: evaluation.relevance")
    if wanted.coco is not None:
        from vsetune.data.captions.coco_judgements import judgements_of

        try:
            judgements_of(dataset, split, wanted.coco)
        except DataError as error:
            yield error.problem.at(f"{where}: evaluation.coco")


def _protocol_problems(names: Sequence[str], split: str, images: int, where: str) -> Iterator[Problem]:
    """Protocols that rank another number of images than the split has."""
    if not names:
        return
    from vsetune.training.evaluation import PROTOCOLS

    for name in names:
        needed = PROTOCOLS[name].images
        if needed is not None and images != needed:
            yield Problem.of(
                "VSE-S012", "{where}: evaluation.protocols: {protocol} needs {need} images, split {split} has {got}; "
                "leave it out", where=where, protocol=name, need=needed, split=split, got=images,
            )


def _ranking_problems(spec: StudySpec, dataset: Dataset, where: str) -> Iterator[Problem]:
    """Problems of rankings: more images to validate or to re-rank than there are, or scores that need a whole split."""
    wanted, validation = spec.evaluation, spec.data.validation_split
    there, best_on = dataset.split(validation).images, evaluated_split(spec.data, dataset)
    chosen = wanted.validation_images
    if chosen is not None and chosen > there:
        yield from _too_large(where, "evaluation.validation_images", chosen, validation, there)
    elif chosen is not None and best_on != spec.data.test_split and wanted.of_whole_split:
        yield Problem.of(
            "VSE-S013", "{where}: evaluation.{key}: needs a whole split, and without a test split the best checkpoint "
            "is scored on {images} images of {split}; leave it out, or validation_images", where=where,
            key=wanted.of_whole_split[0], images=chosen, split=validation,
        )
    ranked = [(chosen or there, validation)]
    ranked += [(dataset.split(best_on).images, best_on)] if best_on == spec.data.test_split else []
    images, split = min(ranked)
    if wanted.rerank is not None:
        yield from _too_large(where, "evaluation.rerank.top", wanted.rerank.top, split, images)


def _too_large(
    where: str, key: str, got: int, split: str, most: int, *, unit: str = "images"
) -> Iterator[Problem]:
    """The problem of a setting that asks for more items than there are, if it does."""
    if got > most:
        yield Problem.of(
            "VSE-S011", "{where}: {key}: got {got}, split {split} has {most} {unit}; use at most {most}", where=where,
            key=key, got=got, split=split, most=most, unit=unit,
        )


def _cell_problems(spec: StudySpec, cell: Cell, dataset: Dataset, where: str) -> Iterator[Problem]:
    """Problems of the cell at its defaults and at the ends of every range of its search."""
    for candidate in candidates(cell):
        trial = build_trial(spec, cell, candidate, trial="fit", seed=spec.seeds[0])
        yield from _batch_problems(trial, dataset, where)
        if not candidate or any(name.startswith("network.") for name in candidate):
            yield from _reading_problems(trial, dataset, where, is_trained=True)
            for name, (other, split) in further_tests(spec.data, dataset).items():
                reading = DataSpec(path=other.path, train_split=split, validation_split=split, test_split=split)
                tested = trial.model_copy(update={"data": reading})
                yield from _reading_problems(tested, other, f"{where}: data.tests.{name}", is_trained=False)
            workers = spec.resources.needs_of(cell.network_name, cell.loss_name).workers
            yield from _network_problems(trial, dataset, where, workers=workers)
        if not candidate or any(name.startswith("loss.") for name in candidate):
            yield from _loss_problems(trial, dataset, where)


def _reading_problems(trial: TrialSpec, dataset: Dataset, where: str, *, is_trained: bool) -> Iterator[Problem]:
    """Problems of a network whose inputs the data set does not have, has damaged, or has of other captions. Phrases are
    read in training only; data without phrases are no problem."""
    reads, data = trial.network.reads, trial.data
    if reads.pixels is None and not dataset.width:
        yield NO_FEATURES(folder=dataset.path).at(where)
        return
    yield from _region_problems(trial, dataset, where)
    checks: list[Callable[[], object]]
    if reads.dependencies:
        for split in (data.train_split, data.validation_split, evaluated_split(data, dataset)):
            checks = [partial(require_as_listed, dataset, split), partial(word_heads, dataset, split)]
            yield from _failing(checks, f"{where}: network {trial.network.name} reads dependency parses")
    if reads.phrases and is_trained:
        split = data.train_split
        checks = [partial(require_as_listed, dataset, split), partial(phrase_codes, dataset, split)]
        yield from _failing(checks, f"{where}: network {trial.network.name} reads phrases of captions")
    if reads.pixels is not None:
        checks = [partial(require_photographs, dataset)]
        if reads.pixels.processor is not None:
            checks.append(partial(require_processor, reads.pixels.processor, size=reads.pixels.size))
        yield from _failing(checks, f"{where}: network {trial.network.name} reads photographs")
    if reads.word_pieces is not None:
        yield from _failing([partial(WordPieces, reads.word_pieces)], where)


def _failing(checks: Sequence[Callable[[], object]], where: str) -> Iterator[Problem]:
    """The error of the first check that fails."""
    try:
        for check in checks:
            check()
    except (ConfigError, DataError) as error:
        yield error.problem.at(where)


def _batch_problems(trial: TrialSpec, dataset: Dataset, where: str) -> Iterator[Problem]:
    split = dataset.split(trial.data.train_split)
    unit, size = trial.training.batch_unit, trial.training.batch_size
    in_epoch = epoch_size(split)
    available = in_epoch.captions if unit == "pairs" else in_epoch.images
    if size > available:
        split_name = f"{trial.data.train_split} of {trial.data.path}"
        yield from _too_large(where, "training.batch_size", size, split_name, available, unit=unit)
        return
    try:
        require_room_for_warmup(trial.training, steps_per_epoch=training_steps_per_epoch(trial, dataset))
    except ConfigError as error:
        yield error.problem.at(where)


def _region_problems(trial: TrialSpec, dataset: Dataset, where: str) -> Iterator[Problem]:
    """Problems of a network that needs boxes, or a fixed number of regions, that the data set does not have."""
    features, spec = dataset.manifest.features, trial.network
    is_equal = features.regions_min == features.regions
    if isinstance(spec, VseppSpec) and spec.image_input == "flatten" and not is_equal:
        yield Problem.of(
            "VSE-S014", "{where}: network.image_input: flatten needs the same number of regions in every image, "
            "{dataset} has {fewest} to {most}; use mean, or ingest a fixed number of regions", where=where,
            dataset=dataset.path, fewest=features.regions_min, most=features.regions,
        )
    is_grid = is_equal and math.isqrt(features.regions) ** 2 == features.regions
    if spec.reads.boxes and not features.boxes and not is_grid:
        yield Problem.of(
            "VSE-S015", "{where}: network {network} needs the boxes of regions, or a square grid of them; {dataset} "
            "has {fewest} to {most} regions without boxes; ingest it with boxes, or a grid", where=where,
            network=spec.name, dataset=dataset.path, fewest=features.regions_min, most=features.regions,
        )


def _network_problems(trial: TrialSpec, dataset: Dataset, where: str, *, workers: int) -> Iterator[Problem]:
    spec = trial.network
    is_divided = workers > 1 or trial.training.chunk_size is not None
    if not (is_divided or _may_refuse(spec)):
        return
    import torch

    from vsetune.networks.network_building import build_network
    from vsetune.training.encoding import require_divisible
    from vsetune.training.start import check_start

    try:
        with torch.device("meta"):  # shapes without memory or arithmetic
            network = build_network(
                spec, regions=dataset.regions, width=dataset.width, vocabulary_size=len(dataset.vocabulary)
            )
        check_start(network, spec, dataset.vocabulary.words)
        require_divisible(network, trial, processes=workers)
    except ConfigError as error:
        yield error.problem.at(where)


def _may_refuse(spec: NetworkSpec) -> bool:
    """Whether building the network may fail for its data or its files: third-party code, models and weights that it
    reads, and the one network of ours that does not take every number of regions. Only these are built for the check,
    because torch takes longer to load than everything else that is checked."""
    reads = spec.reads
    is_of_one_vector = isinstance(spec, VseppSpec) and spec.image_input == "global"
    return (
        not _is_ours(spec) or is_of_one_vector or spec.start_from is not None or reads.pixels is not None
        or reads.word_pieces is not None
    )


def _is_ours(spec: NetworkSpec | LossSpec) -> bool:
    return type(spec).__module__.startswith("vsetune.")


def _loss_problems(trial: TrialSpec, dataset: Dataset, where: str) -> Iterator[Problem]:
    """Problems of a loss when it is built for this many images, and phases that would train nothing. As networks,
    losses are built only where that may show a problem."""
    phases = trial.training.phases or [PhaseSpec()]
    terms = [term for number in range(len(phases)) for term in trial.loss_in(number).terms().values()]
    if all(_is_ours(term) and not term.lasting_sizes for term in terms) and all(
        phase.trains != "loss" for phase in phases
    ):
        return
    import torch

    from vsetune.losses.loss_base import LossContext
    from vsetune.losses.loss_building import build_loss

    context = LossContext(trial.network.embedding_size, dataset.split(trial.data.train_split).images)
    for number, phase in enumerate(phases):
        try:
            with torch.device("meta"):
                loss = build_loss(trial.loss_in(number), context)
        except ConfigError as error:
            yield error.problem.at(where)
        else:
            if phase.trains == "loss" and not loss.parameter_groups():
                yield Problem.of(
                    "VSE-S016", "{where}: training.phases[{phase}].trains: got loss, but {loss} learns nothing; use "
                    "all", where=where, phase=number, loss=trial.loss.name,
                )
