"""How Alembic runs the migrations: on the connection, and in the transaction, that it was handed."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], target_metadata=None)
context.run_migrations()
