"""Which version a database has, what to do about it, and doing it.

A store looks at the version it finds, which is cheap, and only an older database makes this module load
Alembic. A new database is made at once from the statements in `ddl/`, a newer one is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from retinue.errors import StoreError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from retinue.store.queries import Dialect

HEAD = "0001"
VERSION_TABLE = "alembic_version"
VERSION = "SELECT version_num FROM alembic_version"

_HERE = Path(__file__).parent


def ddl_file(version: str, dialect: Dialect) -> Path:
    return _HERE / "ddl" / f"{version}.{dialect}.sql"


def ddl(version: str, dialect: Dialect) -> list[str]:
    """The statements that make the tables of one version."""
    text = ddl_file(version, dialect).read_text("utf-8")
    return text.rstrip().removesuffix(";").split(";\n\n")


def fresh(dialect: Dialect) -> list[str]:
    """The statements that make a new database of the newest version."""
    return [
        *ddl(HEAD, dialect),
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
        "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))",
        f"INSERT INTO alembic_version (version_num) VALUES ('{HEAD}')",  # noqa: S608  # a constant
    ]


def is_old(found: str | None, where: str) -> bool:
    """True if the database must be brought up to date. Raises `StoreError` if it is not for this code."""
    if found == HEAD:
        return False
    if found is not None and not (len(found) == len(HEAD) and found.isdigit()):
        raise StoreError(f"{where} belongs to another program (its version is {found!r}): choose another one")
    if found is not None and found > HEAD:
        raise StoreError(
            f"{where} has version {found}, this Retinue knows up to {HEAD}: "
            "upgrade with 'pip install -U retinue'"
        )
    return True


def upgrade(connection: Connection) -> None:
    """Bring a database up to date, inside the transaction that the caller has begun."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_HERE / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
