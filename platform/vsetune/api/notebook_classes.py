"""Losses and networks whose classes stand in a notebook: pickled by value, by cloudpickle, into a plugin folder, from
where studies, their workers and later sessions load them like any other plugin.

A pickle says of a class what it does, but not whether it is the same as another: a cell that runs again makes another
version of the plugin. A study that has begun therefore goes on with the class that it keeps.
"""

from __future__ import annotations

import logging
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import cloudpickle

from vsetune.config.component_specs import LossSpec, NetworkSpec
from vsetune.config.plugins import Plugin, load_plugin
from vsetune.config.registry import name_of
from vsetune.config.spec.base import Spec
from vsetune.errors import ConfigError
from vsetune.home.paths import home
from vsetune.home.whole_files import make_folder, write_text
from vsetune.study.kept_plugins import load_kept_by_name

_log = logging.getLogger(__name__)

_BASES: Mapping[str, type[Spec]] = {"loss": LossSpec, "network": NetworkSpec}
_BUILDING = {"loss": "vsetune.losses.loss_building", "network": "vsetune.networks.network_building"}
_PICKLE = "classes.pickle"
_PYTHON = "{}.{}".format(*sys.version_info)

_SPEC_FILE = '''"""A class of a notebook, pickled by Python {python} with everything of the notebook that it uses."""

from vsetune.api.notebook_classes import unpickled

component, settings = unpickled(__file__, python="{python}")


class {spec}(settings):
    __doc__ = settings.__doc__
'''
_CODE_FILE = """from {building} import register

from .spec import {spec}, component

register({spec})(component)
"""


def plugin_of_class(component: type[Any], kind: str, study_folder: Path | None) -> Plugin:
    """The loaded plugin of a component: the one that the study keeps; else its folder `written/KIND_NAME` in the home,
    where a new definition replaces the former.

    component: a subclass of `Loss` or `Network` that is annotated with its settings, `spec: MySpec`. kind: `loss` or
    `network`. study_folder: of the study that it is for, if it has a name.

    ConfigError: a class without settings, or one that cannot be pickled; also those of plugins.
    """
    spec = get_type_hints(component).get("spec")
    if not (isinstance(spec, type) and issubclass(spec, _BASES[kind]) and spec is not _BASES[kind]):
        raise ConfigError(
            "VSE-A002", "{name}: does not say which settings it has; write `spec: {name}Spec` in the class, a class "
            "derived from {base} that is defined beside it", name=component.__name__, base=_BASES[kind].__name__,
        )
    name = name_of(spec)
    kept = load_kept_by_name({name}, study_folder) if study_folder is not None else []
    for plugin in (each for each in kept if each.kind == kind):
        _log.warning(
            "%s %s: the study has begun and goes on with the class in %s; a new definition needs a study of another "
            "name", kind, name, plugin.folder,
        )
        return plugin
    folder = home() / "written" / f"{kind}_{name}"
    make_folder(folder)
    write_text(folder / _PICKLE, _pickled(component, spec))
    texts = {"spec": spec.__name__, "python": _PYTHON, "building": _BUILDING[kind]}
    write_text(folder / "spec.py", _SPEC_FILE.format(**texts))
    write_text(folder / f"{kind}.py", _CODE_FILE.format(**texts))
    (plugin,) = load_plugin(str(folder), base=folder)
    return plugin


def unpickled(file: str, *, python: str) -> tuple[type[Any], type[Any]]:
    """The component and its settings, for the plugin whose file calls this. ConfigError with another Python."""
    if python != _PYTHON:
        raise ConfigError(
            "VSE-A009", "{file}: was pickled by Python {python}, whose code Python {ours} cannot read; use Python "
            "{python}", file=file, python=python, ours=_PYTHON,
        )
    component, settings = pickle.loads(Path(file).with_name(_PICKLE).read_bytes())
    return component, settings


def _pickled(component: type[Any], spec: type[Spec]) -> bytes:
    """Both with the code of their modules; what these import from other modules is imported where they are loaded."""
    names = {each.__module__ for each in (component, spec)} - {"__main__"}
    modules = [sys.modules[name] for name in names & sys.modules.keys()]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        content: bytes = cloudpickle.dumps((component, spec))
        return content
    except (TypeError, pickle.PicklingError) as error:
        raise ConfigError(
            "VSE-A003", "{name}: cannot be pickled ({reason}); make such objects inside the class, or import them",
            name=component.__name__, reason=error,
        ) from error
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
