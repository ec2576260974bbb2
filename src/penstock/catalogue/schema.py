"""The tables of the SQLite catalogue, as numbered steps.

`user_version` in the file says how many steps it has taken. A step that was released is never
edited: a change is another step. The tables are also an interface for people, who may read them
with any SQLite tool while the broker runs (docs/reference has the columns):

    topics            one row a topic; the four columns after the counts show the settings in force,
                      `config` holds what was set on the topic itself
    consumer_groups   a mirror of the groups, behind by a moment
    resource_configs  dynamic configuration of brokers ('' is all of them) and groups
    quotas            client quotas; `entity` names user, client-id or ip, null being the default
    sequences         numbers that are never given out twice
    vhosts            virtual hosts, each with its own of what follows
    users             who may log in; `password` is salted and hashed, null for nobody
    permissions       what a user may configure, write to and read from, by patterns of names
    exchanges, queues, bindings      `topic` of a queue holds its messages
    policies          settings for the queues and exchanges whose name fits a pattern

Times are UTC text that SQLite's date functions understand.
"""

from __future__ import annotations

import sqlite3

APPLICATION_ID = 0x50454E53  # "PENS", so that `file` and we can tell whose database it is

_STEPS = (
    """
    CREATE TABLE topics (
        topic_name         TEXT PRIMARY KEY NOT NULL,
        topic_id           TEXT UNIQUE NOT NULL,
        partition_count    INTEGER NOT NULL CHECK (partition_count > 0),
        replication_factor INTEGER NOT NULL CHECK (replication_factor > 0),
        retention_ms       INTEGER NOT NULL,
        max_message_bytes  INTEGER NOT NULL,
        compression_type   TEXT NOT NULL CHECK (compression_type IN
            ('uncompressed', 'zstd', 'lz4', 'snappy', 'gzip', 'producer')),
        cleanup_policy     TEXT NOT NULL,
        created_at         TEXT NOT NULL,
        config             TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(config))
    );
    CREATE TABLE consumer_groups (
        group_id       TEXT PRIMARY KEY NOT NULL,
        coordinator_id INTEGER NOT NULL,
        state          TEXT NOT NULL,
        protocol_type  TEXT NOT NULL,
        generation_id  INTEGER NOT NULL,
        leader_id      TEXT NOT NULL,
        created_at     TEXT NOT NULL,
        last_heartbeat TEXT
    );
    CREATE TABLE resource_configs (
        resource_type TEXT NOT NULL CHECK (resource_type IN ('broker', 'group')),
        resource_name TEXT NOT NULL,
        config        TEXT NOT NULL CHECK (json_valid(config)),
        PRIMARY KEY (resource_type, resource_name)
    );
    CREATE TABLE quotas (
        entity TEXT NOT NULL CHECK (json_valid(entity)),
        name   TEXT NOT NULL,
        value  REAL NOT NULL,
        PRIMARY KEY (entity, name)
    );
    CREATE TABLE sequences (
        name TEXT PRIMARY KEY NOT NULL,
        next INTEGER NOT NULL
    );
    """,
    """
    CREATE TABLE vhosts (
        name       TEXT PRIMARY KEY NOT NULL,
        created_at TEXT NOT NULL
    );
    CREATE TABLE users (
        name     TEXT PRIMARY KEY NOT NULL,
        password TEXT,
        tags     TEXT NOT NULL DEFAULT ''
    );
    CREATE TABLE permissions (
        user      TEXT NOT NULL,
        vhost     TEXT NOT NULL,
        configure TEXT NOT NULL,
        write     TEXT NOT NULL,
        read      TEXT NOT NULL,
        PRIMARY KEY (user, vhost)
    );
    CREATE TABLE exchanges (
        vhost       TEXT NOT NULL,
        name        TEXT NOT NULL,
        kind        TEXT NOT NULL,
        durable     INTEGER NOT NULL,
        auto_delete INTEGER NOT NULL,
        internal    INTEGER NOT NULL,
        arguments   TEXT NOT NULL CHECK (json_valid(arguments)),
        PRIMARY KEY (vhost, name)
    ) WITHOUT ROWID;
    CREATE TABLE queues (
        vhost       TEXT NOT NULL,
        name        TEXT NOT NULL,
        topic       TEXT NOT NULL,
        durable     INTEGER NOT NULL,
        exclusive   INTEGER NOT NULL,
        auto_delete INTEGER NOT NULL,
        adopted     INTEGER NOT NULL,
        arguments   TEXT NOT NULL CHECK (json_valid(arguments)),
        PRIMARY KEY (vhost, name)
    ) WITHOUT ROWID;
    CREATE TABLE bindings (
        vhost            TEXT NOT NULL,
        source           TEXT NOT NULL,
        destination      TEXT NOT NULL,
        destination_kind TEXT NOT NULL CHECK (destination_kind IN ('queue', 'exchange')),
        routing_key      TEXT NOT NULL,
        arguments        TEXT NOT NULL CHECK (json_valid(arguments)),
        PRIMARY KEY (vhost, source, destination, destination_kind, routing_key, arguments)
    ) WITHOUT ROWID;
    CREATE TABLE policies (
        vhost      TEXT NOT NULL,
        name       TEXT NOT NULL,
        pattern    TEXT NOT NULL,
        definition TEXT NOT NULL CHECK (json_valid(definition)),
        priority   INTEGER NOT NULL,
        apply_to   TEXT NOT NULL CHECK (apply_to IN ('all', 'queues', 'exchanges')),
        PRIMARY KEY (vhost, name)
    );
    """,
)

VERSION = len(_STEPS)


def migrate(connection: sqlite3.Connection, version: int) -> None:
    """Take the steps that are missing, all in one transaction with the new `user_version`."""
    assert 0 <= version <= VERSION
    if version == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in _STEPS[version:]:
            for statement in filter(str.strip, step.split(";")):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
