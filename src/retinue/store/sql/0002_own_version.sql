-- The version of the tables, which the first Retinue left to Alembic.

CREATE TABLE retinue_schema (
    version INTEGER NOT NULL
);

INSERT INTO retinue_schema (version) VALUES (1);

DROP TABLE IF EXISTS alembic_version;
