"""A catalog of Iceberg's REST protocol, whose metadata another implementation of Iceberg computes: pyiceberg.

It answers what Spark's client asks of tables ("REST Catalog", Iceberg's OpenAPI): enough to create, load, commit and drop. A commit
takes effect before its answer is sent, so a proxy that loses the answer leaves what a gateway's time-out leaves.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata

from tests.http_servers import Handler, served


class Tables:
    """Tables of one warehouse, with the files of their metadata."""

    def __init__(self, home: Path) -> None:
        """Begin with none."""
        self.home = home
        self.lock = threading.Lock()
        self.namespaces: set[str] = set()
        self.tables: dict[str, tuple[str, TableMetadata]] = {}

    def put(self, name: str, metadata: TableMetadata) -> dict[str, Any]:
        """Write a table's metadata to a file, make it the current one, and say so as the protocol does."""
        number = int(Path(self.tables[name][0]).name[:5]) + 1 if name in self.tables else 0
        file = Path(metadata.location.removeprefix("file:")) / "metadata"
        file.mkdir(parents=True, exist_ok=True)
        file /= f"{number:05}-{uuid.uuid4()}.metadata.json"
        file.write_text(metadata.model_dump_json())
        self.tables[name] = (f"file:{file}", metadata)
        return self.loaded(name)

    def loaded(self, name: str) -> dict[str, Any]:
        """Say what a table is."""
        location, metadata = self.tables[name]
        return {
            "metadata-location": location,
            "metadata": json.loads(metadata.model_dump_json()),
            "config": {},
        }

    def create(self, namespace: str, body: bytes) -> dict[str, Any]:
        """Make an empty table."""
        # pyiceberg's client writes both as null where they are not given; Spark's leaves them out.
        asked = CreateTableRequest.model_validate({"location": None, "write-order": None, **json.loads(body)})
        metadata = new_table_metadata(
            asked.table_schema,
            asked.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            asked.write_order or UNSORTED_SORT_ORDER,
            asked.location or f"file:{self.home}/{namespace}/{asked.name}",
            {"format-version": "2", **asked.properties},
        )
        return self.put(f"{namespace}.{asked.name}", metadata)

    def commit(self, name: str, body: bytes) -> dict[str, Any]:
        """Apply the updates of a commit whose requirements hold."""
        namespace, table = name.split(".")
        identifier = {"namespace": [namespace], "name": table}
        asked = CommitTableRequest.model_validate({"identifier": identifier, **json.loads(body)})
        location, metadata = self.tables[name]
        for requirement in asked.requirements:
            requirement.validate(metadata)
        return self.put(name, update_table_metadata(metadata, asked.updates, metadata_location=location))


@contextmanager
def running(home: Path) -> Iterator[str]:
    """Serve while the block runs; its address."""
    tables = Tables(home)

    class Catalog(Handler):
        def _answer(self) -> None:
            body = self.body()
            with tables.lock:
                try:
                    result = self._found(self.path.partition("?")[0].strip("/").split("/")[1:], body)
                except KeyError as error:
                    return self._refuse(404, "NoSuchTableException", f"{error} does not exist")
                except CommitFailedException as error:
                    return self._refuse(409, "CommitFailedException", str(error))
            return self.reply(200, json.dumps(result).encode(), Content_Type="application/json")

        def _found(self, path: list[str], body: bytes) -> dict[str, Any]:
            match (self.command, path):
                case ("GET", ["config"]):
                    return {"defaults": {}, "overrides": {}}
                case ("POST", ["namespaces"]):
                    name = ".".join(json.loads(body)["namespace"])
                    tables.namespaces.add(name)
                    return {"namespace": [name], "properties": {}}
                case ("GET" | "HEAD", ["namespaces", name]):
                    if name not in tables.namespaces:
                        raise KeyError(name)
                    return {"namespace": [name], "properties": {}}
                case ("POST", ["namespaces", name, "tables"]):
                    return tables.create(name, body)
                case ("POST", ["namespaces", name, "tables", table]):
                    return tables.commit(f"{name}.{table}", body)
                case ("GET" | "HEAD", ["namespaces", name, "tables", table]):
                    return tables.loaded(f"{name}.{table}")
                case ("DELETE", ["namespaces", name, "tables", table]):
                    del tables.tables[f"{name}.{table}"]
                    return {}
            raise KeyError("/".join(path))

        def _refuse(self, status: int, kind: str, message: str) -> None:
            error = {"message": message, "type": kind, "code": status}
            self.reply(status, json.dumps({"error": error}).encode(), Content_Type="application/json")

        do_GET = do_HEAD = do_POST = do_DELETE = _answer

        def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
            super().reply(status, b"" if self.command == "HEAD" else body, **headers)

    with served(Catalog) as address:
        yield address
