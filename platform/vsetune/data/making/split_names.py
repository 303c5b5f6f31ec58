"""The names of splits in an output: those of the source, renamed as the recipe says, and slips told."""

from __future__ import annotations

import re
from collections.abc import Mapping

from vsetune.config.sources.recipe import SPLIT_NAME
from vsetune.config.spec.foreign_text import one_line
from vsetune.data.making.raw import RawDataset, RawSplit, require_captions
from vsetune.errors import DataError

_MEANT = ("train", "validation", "test", "val", "dev", "valid", "restval")
"""What splits are called, here or by others."""


def named_splits(raw: RawDataset, names: Mapping[str, str]) -> RawDataset:
    """The raw data set with its splits renamed. DataError for a missing train split, an empty or doubled one, one that
    is nearly called as ours are, or for a name that can be no part of a file's name."""
    splits: dict[str, RawSplit] = {}
    for old, split in raw.splits.items():
        new = names.get(old, old)
        if new in splits:
            raise DataError(f"splits: two splits would be called {new}; rename one of {', '.join(raw.splits)}.")
        if not re.fullmatch(SPLIT_NAME, new):
            raise DataError(
                f"splits: got the split {one_line(repr(new))}, need a name of at most 60 letters, digits, _ and -; "
                "rename it in `splits` of the recipe."
            )
        if old not in names:
            _refuse_slip(old, raw, names)
        if not split.images:
            raise DataError(f"split {old}: no images with captions are left in it; check its list and the captions.")
        for image in split.images:
            require_captions(image.captions, place=f"split {old}: image {one_line(image.id)}")
        splits[new] = split
    if "train" not in splits:
        raise DataError(f"splits: found {', '.join(splits) or 'none'}, need one called train; rename it in `splits`.")
    return RawDataset(splits, raw.notes)


def _refuse_slip(name: str, raw: RawDataset, names: Mapping[str, str]) -> None:
    meant = next((each for each in _MEANT if _is_slip_of(each, name)), None)
    if meant is None:
        return
    kept = ", ".join(f"{old}: {names.get(old, old)}" for old in raw.splits if old in names or old == name)
    raise DataError(
        f"splits: got the split {name!r} ({len(raw.splits[name].images):,} images), did you mean {meant}? Mend it "
        f"where it stands, or keep it with `splits: {{{kept}}}` in the recipe."
    )


def _is_slip_of(meant: str, name: str) -> bool:
    """In capitals, or with one letter too many, missing, wrong or changed with its neighbour; the first is right, and
    what only goes on (`testA`) is a name of its own."""
    if name == meant:
        return False
    if name.lower() == meant:
        return True
    same = next((n for n, (a, b) in enumerate(zip(name, meant, strict=False)) if a != b), min(len(name), len(meant)))
    is_short = len(meant) < 4
    if same == 0 or is_short or name in _MEANT or not name.isalpha() or name.startswith(meant):
        return False
    rest, right = name[same:], meant[same:]
    swapped = right[1:2] + right[:1] + right[2:]
    return rest[1:] in (right, right[1:]) or rest in (right[1:], swapped)
