"""Deployments: which version of the model was made the current one, in order, as small files in the store.

A start of the pipeline is a deployment if its model differs from that of the start before. So a restart, with
the same model as before, keeps what was deployed to the running query meanwhile.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace

from d3gnn.store.sealed_json import to_json
from d3gnn.store.store import Store

#: The folder of the deployments.
DEPLOYMENTS = "models/deployed"


@dataclass(frozen=True)
class Deployment:
    """One version of the model made the current one."""

    #: From 1, in order.
    number: int
    #: The version of the model.
    model: int
    #: The version that the last start was given. A deployed model must fit into the operators of this one.
    given: int
    #: Microseconds since 1970.
    at: int = 0
    #: Classes of the running pipeline's model that are not part of d3gnn.
    plugins: tuple[str, ...] = ()
    #: Whether the pipeline's alerts need a classifier.
    by_class: bool = False


def last_deployment(store: Store) -> Deployment | None:
    """The newest deployment; None before the first start."""
    numbers = [int(name.partition(".")[0]) for name in store.list(DEPLOYMENTS)]
    while numbers:
        if (plain := store.read_json(_path(number := max(numbers)))) is not None:
            return Deployment(**plain | {"plugins": tuple(plain["plugins"])})
        numbers.remove(number)
    return None


def start_with(store: Store, given: int, plugins: tuple[str, ...], *, by_class: bool) -> Deployment:
    """The deployment that counts for a start with this version of the model."""
    while True:
        last = last_deployment(store)
        if last is not None and (last.given, last.plugins, last.by_class) == (given, plugins, by_class):
            return last
        keeps = last is not None and last.given == given
        made = Deployment(1, last.model if last and keeps else given, given, 0, plugins, by_class)
        if (stored := _append(store, last, made)) is not None:
            return stored


def deploy_version(store: Store, model: int) -> Deployment:
    """Make a version of the model the current one, for the running query and for later starts."""
    while True:
        last = last_deployment(store)
        if last is None:
            raise FileNotFoundError(f"the store {store.uri} has no model: no pipeline has started on it")
        if last.model == model:
            return last
        if (stored := _append(store, last, replace(last, model=model))) is not None:
            return stored


def _append(store: Store, last: Deployment | None, new: Deployment) -> Deployment | None:
    """The deployment with the next number; None if another process was faster."""
    number = 1 if last is None else last.number + 1
    made = replace(new, number=number, at=time.time_ns() // 1000)
    return made if store.create(_path(number), to_json(asdict(made))) else None


def _path(number: int) -> str:
    return f"{DEPLOYMENTS}/{number:06d}.json"
