"""Stored workflows as the views show them: for what a record of a run does not say, its log is read."""

from __future__ import annotations

from retinue.cli.view.tree import Shown, Tree
from retinue.store.base import RunRow, Store


class Stored:
    """One workflow as it stands in the store."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def shown(self, row: RunRow) -> Shown:
        """The status of a run for people."""
        node = self.tree.nodes.get(row.run_id)
        return row.status if node is None or node.status != row.status else node.shown


async def stored(store: Store, root_id: str) -> Stored:
    tree = Tree()
    for event in await store.events(root_id):
        tree.apply(event)
    return Stored(tree)
