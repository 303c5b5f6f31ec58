"""The wording of every error of the Python interface that a user meets."""

from __future__ import annotations

from vsetune.errors import Message

NO_SOURCE = Message(
    "VSE-A001", "{name}: its source cannot be read ({reason}); write the class in a cell of a notebook or in a file"
)
NO_SPEC_NAMED = Message(
    "VSE-A002", "{name}: does not say which settings it has; write `spec: {name}Spec` in the class, a class derived "
    "from {base} that is defined beside it",
)
NOT_WRITABLE = Message(
    "VSE-A003", "{name}: {used} is a {kind}, which cannot be written to a file; define it in a cell as a function, a "
    "class or a number, or import it",
)
NOT_A_COMPONENT = Message("VSE-A004", "{key}: got {got}, need {need}")
NO_SUCH_IMAGE = Message(
    "VSE-A005", "{trial}: got image {got!r}, need the id of an image of split {split}, a photograph, or features"
)
NO_QUERY = Message("VSE-A006", "search: got {got}, need a sentence or `image=`")
NO_STUDY = Message("VSE-A007", "train: got a study and {key}, need the study file, or keywords alone")
NO_DATA = Message("VSE-A008", "train: got no data set, need `data=`, its folder, or a study file")
