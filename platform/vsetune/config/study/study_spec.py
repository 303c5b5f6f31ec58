"""A study: the compared cells, the search space, the budget. One YAML file is one StudySpec without contradictions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from vsetune.config.sources.index_recipe import IndexSpec
from vsetune.config.sources.trial_inputs import DataSpec
from vsetune.config.spec.base import FreeKeys, Name, SearchDomain, Seed, Spec, did_you_mean, listed_twice
from vsetune.config.study.domains import known_table
from vsetune.config.study.evaluation_settings import EvaluationSpec
from vsetune.config.study.resources import ResourceSpec
from vsetune.config.study.study_entries import LossEntry, NetworkEntry, Override
from vsetune.config.study.training import TrainingSpec
from vsetune.errors import Problem
from vsetune.home.paths import PathText, UriText


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class ScenesSpec(Spec):
    """Sizes of the generated data set, made on first use when a study names it."""

    train: int = Field(2000, ge=1, le=10_000_000, description="images; five captions each")
    validation: int = Field(400, ge=1, le=10_000_000)
    test: int = Field(400, ge=1, le=10_000_000)
    seed: Seed = 0


class StudyDataSpec(DataSpec):
    """The data set of a study. Relative paths are under VSETUNE_HOME (default ~/vsetune)."""

    later_keys: ClassVar[tuple[str, ...]] = (*DataSpec.later_keys, "index")

    scenes: ScenesSpec | None = Field(None, description="generate the data set at `path` when it is missing")
    index: IndexSpec | None = Field(
        None, description="index these shards of other software when `path` has no index of them yet; as in an index "
        "recipe, where relative paths are under the working directory",
    )

    @model_validator(mode="after")
    def _is_made_in_one_way(self) -> StudyDataSpec:
        if self.scenes is not None and self.index is not None:
            raise ValueError(Problem.of("VSE-C018", "got scenes and index, need one of them, which makes the data set"))
        return self


ObjectiveName = Literal["best_m_recall", "epochs_to_target", "area_under_curve"]


class ConstraintSpec(Spec):
    """What the winner of a cell has to keep; a trial that breaks one is never the pick, however good."""

    seconds_per_epoch: float | None = Field(None, gt=0, description="at most; training steps alone")
    peak_memory_gib: float | None = Field(None, gt=0, description="at most; of the device that trains")

    @property
    def given(self) -> bool:
        """Whether there is a constraint."""
        return self.seconds_per_epoch is not None or self.peak_memory_gib is not None


class SearchSpec(Spec):
    """How configurations are chosen, the same for every cell."""

    free_keys: ClassVar[FreeKeys] = {"training": TrainingSpec}

    configurations: int = Field(
        8, ge=1, le=1_000_000, description="budget of a cell in whole trainings (1 if nothing is searched); epochs "
        "that stopped trials leave over go to further configurations",
    )
    at_once: int | None = Field(
        None, ge=1, le=100_000, description="most trials of a cell at a time, so that the search hears of some before "
        "it asks for others; default: the start of a search that learns side by side, then as many as the cluster has "
        "places for a cell, at least 2, at most a quarter of `configurations`",
    )
    sampler: Literal["gp", "tpe", "sobol", "random", "grid"] = Field(
        "gp", description="gp (a Gaussian process) learns from the fewest trials; sobol covers the space evenly; grid "
        "tries every combination of `choices` and whole numbers, in random order",
    )
    start: Literal["sobol", "random"] = Field(
        "sobol", description="how samplers that learn choose the first third of `configurations` (2 to 10)",
    )
    points: Annotated[list[Annotated[str, AfterValidator(known_table)]], BeforeValidator(_listed)] = Field(
        default_factory=list, max_length=20,
        description="settings that papers print, tried after the defaults: lseh_table2, or lseh_table2.coco for one "
        "data set",
    )
    repeats: int = Field(
        1, ge=1, le=100, description="searches of every cell, each with its own samples, budget, winner and confirming "
        "seeds; tuned losses are compared over them, from 3 on; a resumed study may have more than before",
    )
    seed: Seed = 0
    include_defaults: bool = Field(True, description="the first configuration of a cell is the papers' defaults")
    training: dict[str, SearchDomain] = Field(
        default_factory=dict, description="training hyperparameters to search, e.g. learning_rate: default",
    )
    objective: ObjectiveName = Field(
        "best_m_recall", description="what the sampler learns from and the winner is picked by; with epochs_to_target "
        "trials of the search stop at the target",
    )
    target: Annotated[float, Field(gt=0, le=100)] | Literal["baseline"] = Field(
        "baseline", description="epochs_to_target: M-Recall in per cent, or what the baseline's search reached with "
        "the same network, which is searched first",
    )
    constraints: ConstraintSpec = ConstraintSpec()

    @property
    def learns(self) -> bool:
        """Whether samples depend on the results of earlier ones."""
        return self.sampler in ("gp", "tpe")

    @property
    def start_trials(self) -> int:
        """How many configurations are sampled before the sampler learns from them, not counting points from papers."""
        return max(2, min(10, self.configurations // 3))


GRACE_SHARE, HALVING_GRACE = 0.6, 1.0
"""Default grace: a share of a whole training; of asha and hyperband, in epochs."""


class SchedulerSpec(Spec):
    """Early stopping, separately in every cell, in epochs."""

    kind: Literal["patience", "median", "asha", "hyperband", "none"] = Field(
        "none", description="none trains every trial whole, so that one that rises late may win; patience stops what "
        "no longer rises below the median; asha and hyperband "
        "keep who is ahead at the rungs",
    )
    grace_epochs: float | None = Field(
        None, gt=0, description="no trial stops before this; default: 60 % of a whole training, for asha and hyperband "
        "1 epoch",
    )
    patience_epochs: float = Field(
        2.0, ge=0, description="patience: a trial below the median stops once its best is this old",
    )
    fewest_trials: int = Field(
        4, ge=1, le=1000, description="patience, median: how many others must have come as far",
    )
    reduction_factor: float = Field(3.0, gt=1, description="asha, hyperband: one in this many goes on at each rung")

    def grace_in(self, epochs: float) -> float:
        """Epochs before which no trial stops. epochs: of a whole training."""
        if self.grace_epochs is not None:
            return self.grace_epochs
        return HALVING_GRACE if self.kind in ("asha", "hyperband") else GRACE_SHARE * epochs


class BudgetSpec(Spec):
    """Limits per cell; a cell that reaches one starts no further configuration. Failed and pruned attempts count."""

    epochs_per_cell: float | None = Field(
        None, gt=0, description="in place of `search.configurations` whole trainings",
    )
    device_seconds_per_cell: float | None = Field(None, gt=0)


class TrackingSpec(Spec):
    """Where results go. Relative paths are under VSETUNE_HOME (default ~/vsetune)."""

    uri: UriText | None = Field(
        None,
        description="MLflow tracking URI, ${NAME} from the environment, or `none`; default: $MLFLOW_TRACKING_URI, else "
        "mlflow.db under VSETUNE_HOME",
    )
    series: Literal["all", "m_recall"] = Field(
        "all", description="what MLflow draws of every validation: all numbers, or M-Recall alone, which takes a "
        "twentieth of the room",
    )
    models: Literal["winners", "none"] = Field(
        "winners",
        description="what is logged as MLflow models when the study has ended: the winner of every cell, whose weights "
        "are not copied, or nothing",
    )
    system_metrics: bool = Field(
        False,
        description="MLflow also draws use of processor, memory and GPU by the machine of each attempt, over its "
        "training; nothing else reads them",
    )


class StudySpec(Spec):
    """A comparison of networks x losses on one data set under equal budgets."""

    later_keys: ClassVar[tuple[str, ...]] = ("cells",)

    study: Name = Field(description="unique name")
    description: str = Field("", max_length=4000)
    plugins: list[PathText] = Field(
        default_factory=list, max_length=100,
        description="other people's losses and networks: folders, relative to this file's",
    )
    data: StudyDataSpec
    networks: list[NetworkEntry] = Field(min_length=1, max_length=100)
    losses: list[LossEntry] = Field(min_length=1, max_length=100)
    overrides: list[Override] = Field(default_factory=list, max_length=1000)
    cells: list[str] | None = Field(
        None, min_length=1, max_length=10_000,
        description="only these cells, `network.loss`; null: every network with every loss",
    )
    baseline: str = Field("lmh", max_length=100, description="cell name of the loss that the others are compared with")
    training: TrainingSpec = TrainingSpec()
    evaluation: EvaluationSpec = EvaluationSpec()
    search: SearchSpec = SearchSpec()
    scheduler: SchedulerSpec = SchedulerSpec()
    budget: BudgetSpec = BudgetSpec()
    seeds: list[Seed] = Field(
        [0], min_length=1, max_length=1000, description="the first searches; the others confirm each cell's winner; "
        "further repeats of the search take as many of the smallest other seeds",
    )
    resources: ResourceSpec = ResourceSpec()
    tracking: TrackingSpec = TrackingSpec()

    def fingerprinted(self) -> dict[str, Any]:
        """Without settings that equal the behaviour of earlier versions. So a study from before even starts, patience
        and points from papers keeps its fingerprint, and can be resumed, if its file has `start: random` and another
        scheduler; one that began with patience after 1 epoch by default, if its file now has
        `scheduler: {kind: patience, grace_epochs: 1}`."""
        plain = self.to_plain()
        search, scheduler = dict(plain["search"]), dict(plain["scheduler"])
        older = SearchSpec(start="random").to_plain()
        for key in ("at_once", "start", "objective", "target", "constraints", "points", "repeats"):
            if search[key] == older[key]:
                del search[key]
        if self.scheduler.kind not in ("patience", "median"):
            del scheduler["patience_epochs"], scheduler["fewest_trials"]
        if self.scheduler.kind in ("asha", "hyperband", "none") and self.scheduler.grace_epochs is None:
            scheduler["grace_epochs"] = HALVING_GRACE
        return {**plain, "search": search, "scheduler": scheduler}

    @model_validator(mode="after")
    def _consistent(self) -> StudySpec:
        problems = list(inconsistencies(self))
        if problems:
            raise ValueError(*problems)
        return self


def inconsistencies(study: StudySpec) -> Iterator[Problem]:
    """The contradictions of a study."""
    networks = [entry.cell_name for entry in study.networks]
    losses = [entry.cell_name for entry in study.losses]
    for key, names, fix in (
        ("networks", networks, "give one of them a `label`"), ("losses", losses, "give one of them a `label`"),
        ("cells", study.cells or [], "name each once"), ("seeds", [*map(str, study.seeds)], "name each once"),
    ):
        if (repeated := listed_twice(names, fix=fix)) is not None:
            yield repeated.at(key)
    if study.baseline not in losses:
        is_given = "baseline" in study.model_fields_set
        yield Problem.of(
            "VSE-C044", "baseline: {baseline} is not among the losses {losses}; {hint}need one of them, such as "
            "{example}", baseline=study.baseline if is_given else f"{study.baseline}, the default,",
            losses=", ".join(losses), hint=did_you_mean(study.baseline, losses), example=f"baseline: {losses[0]}",
        )
    elif study.search.objective == "epochs_to_target" and study.search.target == "baseline":
        for network in dict.fromkeys(name.split(".")[0] for name in study.cells or ()):
            if f"{network}.{study.baseline}" not in (study.cells or ()):
                yield Problem.of(
                    "VSE-C047", "search.target: is the best of {cell}, which is not among `cells`; list it, or give an "
                    "M-Recall in per cent", cell=f"{network}.{study.baseline}",
                )
    existing = [f"{network}.{loss}" for network in dict.fromkeys(networks) for loss in dict.fromkeys(losses)]
    overridden = [f"{each.network}.{each.loss}" for each in study.overrides]
    for key, names in (("overrides", overridden), ("cells", study.cells or [])):
        unknown = [name for name in dict.fromkeys(names) if name not in existing]
        if unknown:
            yield Problem.of(
                "VSE-C045", "{key}: got {got}, need network.loss of the networks {networks} and the losses {losses}; "
                "{hint}", key=key, got=", ".join(unknown),
                hint=did_you_mean(unknown[0], existing).strip() or "correct it", networks=", ".join(networks),
                losses=", ".join(losses),
            )
    unknown = study.resources.unknown_cells(networks, losses)
    if unknown:
        yield Problem.of(
            "VSE-C046", "resources.cells: got {got}, need a network ({networks}) or network.loss",
            got=", ".join(unknown), networks=", ".join(networks),
        )
    grace = study.scheduler.grace_in(study.training.epochs)
    if study.scheduler.kind != "none" and grace > study.training.epochs:
        yield Problem.of(
            "VSE-C049", "scheduler.grace_epochs: got {got:g}, need at most training.epochs ({epochs:g})", got=grace,
            epochs=study.training.epochs,
        )
