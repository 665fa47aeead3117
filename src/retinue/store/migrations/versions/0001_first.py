"""The first tables: events, runs, letters, cache."""

from __future__ import annotations

from typing import cast

from alembic import op

from retinue.store.migrate import ddl
from retinue.store.queries import Dialect

revision = "0001"
down_revision = None


def upgrade() -> None:
    connection = op.get_bind()
    for statement in ddl("0001", cast("Dialect", connection.dialect.name)):
        connection.exec_driver_sql(statement)
