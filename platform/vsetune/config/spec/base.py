"""The base of every spec: frozen, unknown keys refused, tunable fields declared beside their default."""

from __future__ import annotations

import difflib
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    TypeAdapter,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails

from vsetune.errors import Message, Problem
from vsetune.home.hashes import fingerprint_of

Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""A seed of numpy and torch."""

ShortSeed = Annotated[int, Field(ge=0, lt=2**32)]
"""A seed of scikit-learn and Optuna, which accept at most 32 bits."""

Size = Annotated[int, Field(le=65_536)]
"""Numbers in a vector or pixels along a side: larger ones fit no device."""

Count = Annotated[int, Field(le=10**9)]
"""A number of items; the bound keeps arithmetic on it exact."""

Name = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
"""A name that becomes part of file names, run names and metric names."""

_LONGEST = 60
"""Characters of a value, a name or a key in a message."""


DataSetName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


def _without_name(settings: dict[str, Any]) -> dict[str, Any]:
    if "name" in settings:
        raise ValueError(Problem.of("VSE-C009", "name: would make another component of this one; remove it"))
    return settings


FreeSettings = Annotated[dict[str, Any], AfterValidator(_without_name)]
"""Settings of a component, which the spec of that component checks when cells are resolved."""


class Spec(BaseModel):
    """A frozen piece of configuration. Unknown keys are errors; numbers must be finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    later_keys: ClassVar[tuple[str, ...]] = ()
    """Fields added after the first release. Plain data omit them at their defaults, so that fingerprints stay the same
    across versions."""

    free_keys: ClassVar[FreeKeys] = {}
    """For fields that are free mappings, the specs whose settings they take; for advice on a key at a wrong place."""

    def to_plain(self) -> dict[str, Any]:
        """The spec as plain JSON-able data, defaults written out."""
        return self.model_dump(mode="json", by_alias=True)

    def fingerprint(self) -> str:
        """Hash of the resolved spec; equal specs give equal fingerprints."""
        return fingerprint_of(self.fingerprinted())

    def fingerprinted(self) -> dict[str, Any]:
        """The data that the fingerprint is computed from. Settings added later are left out where they equal the
        earlier behaviour, if fingerprints have to stay the same."""
        return self.to_plain()

    @model_serializer(mode="wrap")
    def _without_later_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain: dict[str, Any] = handler(self)
        fields = type(self).model_fields
        for key in self.later_keys:
            if getattr(self, key) == fields[key].get_default(call_default_factory=True):
                plain.pop(key, None)
        return plain

    @model_validator(mode="before")
    @classmethod
    def _truth_is_no_number(cls, given: Any) -> Any:
        """Refuse true and false for a number: YAML reads yes and on as true, and pydantic takes true for 1."""
        wrong: list[InitErrorDetails] = []
        for key, value in given.items() if isinstance(given, dict) else ():
            each = [((key, n), one) for n, one in enumerate(value)] if isinstance(value, list) else [((key,), value)]
            for place, one in each:
                if isinstance(one, bool) and key in cls.model_fields and _is_number(cls.model_fields[key].annotation):
                    error = ValueError(Problem.of(
                        "VSE-C007", "got {got}, as YAML also reads yes, no, on and off; need a number",
                        got=str(one).lower(),
                    ))
                    wrong.append({"type": "value_error", "loc": place, "input": one, "ctx": {"error": error}})
        if wrong:
            raise ValidationError.from_exception_data(cls.__name__, wrong)
        return given


def kinds_of(annotation: Any) -> Iterator[Any]:
    """The parts of an annotation: its types, and the values of a Literal, without the metadata of `Annotated`."""
    pending = [annotation]
    while pending:
        one = pending.pop(0)
        pending += get_args(one)[:1] if get_origin(one) is Annotated else get_args(one)
        pending += [getattr(one, of) for of in ("__value__", "__supertype__") if hasattr(one, of)]  # alias, NewType
        yield one


def _is_number(annotation: Any) -> bool:
    """Whether numbers fit the annotation, and true and false do not."""
    kinds = list(kinds_of(annotation))
    return (int in kinds or float in kinds) and bool not in kinds and Any not in kinds


def _is_whole(annotation: Any) -> bool:
    """Whether only whole numbers fit the annotation: int alone, optional, annotated, or a Literal of whole numbers."""
    kinds = list(kinds_of(annotation))
    types = [kind if isinstance(kind, type) else type(kind) for kind in kinds]
    return float not in kinds and any(issubclass(kind, int) and kind is not bool for kind in types)


_MOST_WHOLE = 2**53
"""Beyond it, not every whole number is a floating-point number."""


def _flaw_of_whole_ends(low: float, high: float) -> Problem | None:
    is_whole = low.is_integer() and high.is_integer() and max(abs(low), abs(high)) <= _MOST_WHOLE
    return None if is_whole else Problem.of(
        "VSE-C013", "got {low:g} to {high:g}, need whole numbers of at most {most}", low=low, high=high,
        most=_MOST_WHOLE,
    )


FreeKeys = Mapping[str, type[Spec] | Mapping[str, type[Spec]]]


class Range(Spec):
    """Numbers to search: from low to high, uniform or log-uniform. integer: whole numbers alone; a setting that is
    annotated as a whole number needs no such mark."""

    low: float
    high: float
    log: bool = False
    integer: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if self.low > self.high:
            raise ValueError(Problem.of(
                "VSE-C010", "low {low:g} is above high {high:g}; exchange them", low=self.low, high=self.high
            ))
        if math.isinf(self.high - self.low):
            raise ValueError(Problem.of(
                "VSE-C011", "low {low:g} and high {high:g} are too far apart; bring them closer", low=self.low,
                high=self.high,
            ))
        if self.log and self.low <= 0:
            raise ValueError(Problem.of(
                "VSE-C012", "low {low:g} cannot be searched on a log scale, need > 0", low=self.low
            ))
        if self.integer and (flaw := _flaw_of_whole_ends(self.low, self.high)) is not None:
            raise ValueError(flaw)
        return self


class Choices(Spec):
    """Values to search, one of a list."""

    choices: list[bool | int | float | str] = Field(min_length=1, max_length=200)


Domain = Range | Choices


def _shape(value: Any) -> str:
    """Which branch of SearchDomain a value is meant to be; the tags start in upper case, so error paths skip them."""
    if isinstance(value, str):
        return "Default"
    is_choices = isinstance(value, Choices) or (isinstance(value, dict) and "choices" in value)
    return "Choices" if is_choices else "Range"


SearchDomain = Annotated[
    Annotated[Literal["default"], Tag("Default")] | Annotated[Range, Tag("Range")] | Annotated[Choices, Tag("Choices")],
    Discriminator(_shape),
]
"""Search domain of one hyperparameter in a file: `default` (its declared range), `{low, high}` or `{choices}`."""


def tunable(
    default: Any, domain: Domain, *, description: str, paper: str = "", when: Mapping[str, Any] | None = None,
    **constraints: Any,
) -> Any:
    """A field that the search may vary: its default, its range and its meaning, in one place.

    domain: the domain that `search: default` samples from. description: meaning and unit. paper: source of the default.
    when: values of other fields without which this one has no effect; `search: default` then leaves it out.
    constraints: pydantic's own (`ge`, `gt`, `le`, `lt`).
    """
    extra: dict[str, Any] = {"tunable": domain.to_plain(), "paper": paper, "when": dict(when or {})}
    return Field(default, description=description, json_schema_extra=extra, **constraints)


def tunables(spec: type[Spec]) -> Iterator[tuple[str, Domain]]:
    """The (field name, default domain) pairs that a spec declares with `tunable`, in order of declaration, as returned
    by `searched_domain`. ValueError that opens with the field's name."""
    for name, field in spec.model_fields.items():
        if declared := _declared(field):
            yield name, searched_domain(spec, name, _DOMAIN.validate_python(declared["tunable"]))


def paper_of(field: FieldInfo | None) -> str:
    """The source of a field's default, as `tunable` was given it; empty without one."""
    return str(_declared(field).get("paper", ""))


def conditions(spec: type[Spec]) -> dict[str, dict[str, Any]]:
    """For every tunable field that only matters at certain values of other fields: those values by field name."""
    return {name: dict(when) for name, field in spec.model_fields.items() if (when := _declared(field).get("when"))}


def _declared(field: FieldInfo | None) -> dict[str, Any]:
    """What `tunable` was given for a field; empty for other fields."""
    extra = None if field is None else field.json_schema_extra
    return extra if isinstance(extra, dict) and "tunable" in extra else {}


_DOMAIN: TypeAdapter[Any] = TypeAdapter(SearchDomain)


def searched_domain(spec: type[Spec], name: str, domain: Domain) -> Domain:
    """The domain of a field as it is searched: over whole numbers if the annotation accepts only those; choices as the
    field reads them, "0.1" for a number as 0.1.

    ValueError that opens with the field's name if a range of whole numbers has ends that are not whole, or if two
    choices are one value.
    """
    if isinstance(domain, Choices):
        return _as_read(spec, name, domain)
    if not _is_whole(spec.model_fields[name].annotation):
        return domain
    if (flaw := _flaw_of_whole_ends(domain.low, domain.high)) is not None:
        raise ValueError(flaw.at(name))
    return domain.model_copy(update={"integer": True})


_ONE_VALUE = Message("VSE-C520", "choices: {got} are one value of this setting; keep one of them")


def _as_read(spec: type[Spec], name: str, domain: Choices) -> Choices:
    """Choices that a trial would refuse stay as they are; the check of the cell reports them."""
    read: dict[tuple[bool, Any], list[Any]] = {}
    for choice in domain.choices:
        value = _read(spec, name, choice)
        read.setdefault((isinstance(value, bool), value), []).append(choice)
    repeated = next((same for same in read.values() if len(same) > 1), None)
    if repeated is not None:
        raise ValueError(_ONE_VALUE(got=" and ".join(map(repr, repeated))).at(name))
    return domain.model_copy(update={"choices": [value for _, value in read]})


def _read(spec: type[Spec], name: str, choice: Any) -> Any:
    field = spec.model_fields[name]
    if isinstance(choice, bool) and _is_number(field.annotation):
        return choice
    try:
        value = _reader(spec, name).validate_python(choice)
    except ValidationError:
        return choice
    return value if isinstance(value, bool | int | float | str) else choice


@cache
def _reader(spec: type[Spec], name: str) -> TypeAdapter[Any]:
    field = spec.model_fields[name]
    annotation: Any = Annotated[field.annotation, field]
    return TypeAdapter(annotation)


def known_name(name: str, known: Iterable[str], kind: str) -> str:
    """`name` if it is known; otherwise a ValueError that names the closest known name and lists them all."""
    names = sorted(known)
    if name in names:
        return name
    raise ValueError(unknown_name(name, names, kind))


def unknown_name(name: str, known: Sequence[str], kind: str) -> Problem:
    """The problem of an unknown name: the closest known name, and all names."""
    return Problem.of(
        "VSE-C004", "no {kind} is called {name}; {hint}need one of {known}", kind=kind,
        name=shortened(name), hint=did_you_mean(name, known), known=", ".join(known),
    )


def listed_twice(names: Sequence[str], *, fix: str) -> Problem | None:
    """The problem of names that are in a list more than once; None if every name is there once."""
    repeated = sorted({name for name in names if names.count(name) > 1})
    text = "{names} is listed twice; {fix}"
    return Problem.of("VSE-C008", text, names=", ".join(repeated), fix=fix) if repeated else None


def shortened(text: str) -> str:
    """The text in one line, cut short, for messages."""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """`did you mean lseh? ` if a known name is close, else an empty text. One with the same letters comes first."""
    close = [each for each in known if sorted(each) == sorted(name)] or difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}? " if close else ""


def unusable_text(text: str) -> str | None:
    """The character in a text that no name, path or database accepts: `a surrogate (U+D800)`; None without one."""
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t":
            kind = "a surrogate" if unicodedata.category(character) == "Cs" else "a control character"
            return f"{kind} (U+{ord(character):04X})"
    return None


Kind = Literal["embedding", "several_embeddings", "probabilistic", "score"]
"""Output of a network for an item: one vector, K vectors, a Gaussian; or it only scores pairs."""

Score = Literal["cosine", "probability", "unbounded", "order"]
"""Range of its similarities: in [-1, 1], in (0, 1), any number, or minus an order violation (0 at best)."""

ALL_KINDS: frozenset[Kind] = frozenset({"embedding", "several_embeddings", "probabilistic", "score"})
ALL_SCORES: frozenset[Score] = frozenset({"cosine", "probability", "unbounded", "order"})
