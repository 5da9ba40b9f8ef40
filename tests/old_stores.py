"""Files of results as earlier versions wrote them."""

import sqlite3
from contextlib import closing

from homophily.evaluation.store import APPLICATION


def write_first_format(path):
    """A store of format 1, which had no claims, with one cell."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute("CREATE TABLE cells (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        connection.execute("PRAGMA user_version = 1")
        connection.execute("INSERT INTO cells VALUES (?, ?)", ('{"cell":1}', '{"score":0.5}'))
