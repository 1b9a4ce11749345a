"""``millrace schema``: JSON Schema of environment files; ``infer``: schema of records; ``check``: schemas of tables."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.box import HEAVY_HEAD
from rich.table import Table
from rich.text import Text

from millrace.cli.plan.schema.check_against_deployed_tables import check
from millrace.cli.shared.console import (
    CommandRefusedError,
    figure_columns,
    print_json,
    print_rich,
    reporting_write_errors_as_wrong_option,
)
from millrace.cli.shared.options import (
    AsJson,
    KafkaAddress,
    KinesisAddress,
    complete_environment_names,
    load_environment_with_stream,
    refuse_options_if,
)
from millrace.config import find_root
from millrace.config.environment_json_schema import SCHEMA_FILE, schema_text

if TYPE_CHECKING:
    from millrace.sandbox.schemas.infer import InferredSchema

schema_app = typer.Typer(invoke_without_command=True)

Format = Literal["json", "csv", "avro", "debezium", "dms"]


schema_app.command("check")(check)


@schema_app.callback()
def schema(
    context: typer.Context,
    write: Annotated[
        bool,
        typer.Option("--write", help="Write the JSON Schema to environments/schema.json. Default: print it."),
    ] = False,
) -> None:
    """Print the JSON Schema of environment files, for editors; infer a schema from records; check tables.

    [bold]Examples[/bold]

      millrace schema --write

      millrace schema infer --file orders.jsonl --out pipelines/shop/schemas/order.ddl

    Then put this first into a file of environments/, for the YAML language server:

      # yaml-language-server: $schema=schema.json
    """
    if context.invoked_subcommand is not None:
        return

    if not write:
        typer.echo(schema_text(), nl=False)
        return
    file = find_root() / SCHEMA_FILE
    if not file.parent.is_dir():
        # A folder that is created here would become the project of all folders below.
        raise typer.BadParameter("--write: there is no folder environments/ here or in a folder above")
    with reporting_write_errors_as_wrong_option("--write", file):
        file.write_text(schema_text(), encoding="utf-8")
    typer.echo(f"wrote {SCHEMA_FILE}")


@schema_app.command()
def infer(
    stream: Annotated[
        str | None,
        typer.Argument(
            metavar="[STREAM]",
            help="Logical name of the stream in the environment file to sample.",
            show_default=False,
        ),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            "--env",
            "-e",
            metavar="ENV",
            help="Environment of the stream.",
            autocompletion=complete_environment_names,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Sample this file (JSON lines, CSV or Avro) instead of a stream.",
        ),
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="How many records to read at most.")] = 1000,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format", help="Format of the records. Default: by the file's name; json for a stream."
        ),
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Delimiter of CSV. Default: detected.")] = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Column names of CSV. Default: the first line of the file."),
    ] = None,
    null: Annotated[
        str, typer.Option(help="Text in CSV that means null, in addition to an empty field.")
    ] = "",
    required: Annotated[
        bool, typer.Option("--required", help="Mark fields that every sampled record has as NOT NULL.")
    ] = False,
    narrow: Annotated[
        bool,
        typer.Option(
            "--narrow",
            help="INT for whole numbers within 32 bits. Default: BIGINT, as an id that grows beyond them would be a dead letter.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Schema file to write: .ddl, or .avsc. With debezium and dms a folder, which gets a file for each table."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    kafka: KafkaAddress = None,
    kinesis: KinesisAddress = None,
    aws: Annotated[
        bool,
        typer.Option("--aws", help="Sample the deployed stream on AWS. Default: the stream of the sandbox."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Infer a schema from a sample of records, show the evidence for each field, and write the schema file.

    Commits no offset and removes no record from the stream. Decompresses messages. A sample cannot show values that come
    later: check the table of fields before you use the schema.

    [bold]Examples[/bold]

      millrace schema infer flights --env local --sample 500

      millrace schema infer --file orders.csv --out pipelines/shop/schemas/order.ddl

      millrace schema infer shop --env dev --format debezium --out pipelines/shop/schemas
    """
    from millrace.sandbox.schemas import ddl_and_pyspark_types
    from millrace.sandbox.schemas.change_schemas import infer_from_changes, schema_file_name_by_table
    from millrace.sandbox.schemas.infer import (
        infer_from_csv,
        infer_from_json,
        read_avro_schema_text_and_fields,
    )

    refuse_options_if(
        ((stream is None) == (file is None), "give STREAM and --env, or --file, but not both"),
        (
            stream is not None and env is None,
            f"--env is missing: name the environment that has stream {stream}",
        ),
    )
    delimiter = _parse_delimiter(delimiter)
    suffixes: dict[str, Format] = {".csv": "csv", ".tsv": "csv", ".avro": "avro"}
    form = form or ("json" if file is None else suffixes.get(file.suffix, "json"))
    changes = form in ("debezium", "dms")
    if not changes:
        _refuse_existing_or_unwritable_out(out, force=force)
    if form == "avro":
        if file is None:
            raise typer.BadParameter(
                "--format avro: an Avro record does not contain its schema; give an Avro file with --file"
            )
        text, result = read_avro_schema_text_and_fields(file.read_bytes())
        as_ddl = out is not None and out.suffix == ".ddl"
        text = ddl_and_pyspark_types.schema_as_ddl(result.schema) if as_ddl else text
        found = {"": _InferredSchemaFile(result, text, out)}
    else:
        payloads, names, delimiter = _payloads_with_columns_and_delimiter(
            stream, env, file, sample, form, delimiter, columns, kafka=kafka, kinesis=kinesis, aws=aws
        )
        if form == "debezium" or form == "dms":
            tables = infer_from_changes(payloads, form, required=required, narrow=narrow)
            places = {
                table: None if out is None else out / name
                for table, name in schema_file_name_by_table(list(tables)).items()
            }
        else:
            tables = {
                "": infer_from_csv(
                    payloads, names, delimiter=delimiter, null=null, required=required, narrow=narrow
                )
                if form == "csv"
                else infer_from_json(payloads, required=required, narrow=narrow)
            }
            places = {"": out}
        found = {
            table: _InferredSchemaFile(each, ddl_and_pyspark_types.schema_as_ddl(each.schema), places[table])
            for table, each in tables.items()
        }
    if problems := [
        f"{each.out}: {problem}"
        for each in found.values()
        if each.out is not None and each.out.suffix == ".ddl"
        for problem in ddl_and_pyspark_types.ddl_problems(each.text)
    ]:
        raise CommandRefusedError(f"the sample has a schema that no query can have: {'; '.join(problems)}")
    for each in found.values() if changes else ():
        _refuse_existing_or_unwritable_out(each.out, force=force)
    for each in found.values():
        if each.out is not None:
            with reporting_write_errors_as_wrong_option("--out", each.out):
                each.out.parent.mkdir(parents=True, exist_ok=True)
                each.out.write_text(each.text, encoding="utf-8")
    if as_json:
        shown = {table: each.as_document() for table, each in found.items()}
        print_json({"tables": shown} if changes else shown[""], indent=None)
        return
    for table, each in found.items():
        if changes:
            print_rich(Text(f"\n{table}", style="bold"))
        _print_inferred(each.result)
        typer.echo(f"\n{each.text}" if each.out is None else f"\nwrote {each.out}", nl=each.out is not None)
    if out is not None and len(found) > 1:
        typer.echo(_routes_yaml(found, stream or "STREAM", form))


@dataclass(frozen=True)
class _InferredSchemaFile:
    """A schema, and the file that gets it."""

    result: InferredSchema
    text: str
    out: Path | None

    def as_document(self) -> dict[str, Any]:
        from millrace.sandbox.schemas.ddl_and_pyspark_types import type_as_ddl

        records = self.result.records
        return {
            "records": records,
            "unreadable": self.result.unreadable,
            "reason": self.result.reason,
            "fields": [
                {
                    "name": f.name,
                    "type": type_as_ddl(f.kind),
                    "null_share": round(f.absent / records, 4) if records else None,
                    "examples": f.examples,
                    "conflicts": f.conflicts,
                }
                for f in self.result.fields
            ],
            "schema": self.text,
            "out": None if self.out is None else str(self.out),
        }


def _routes_yaml(inferred: Mapping[str, _InferredSchemaFile], stream: str, form: str) -> str:
    """Return the routes of a query for tables, as the environment file has them."""
    lines = (
        f"  {re.sub('[^a-z0-9_]', '_', table.rpartition('.')[2].lower())}: "
        f"{{source: {stream}, changes_of: {table}, format: {{kind: {form}}}, schema: {each.out}}}"
        for table, each in inferred.items()
    )
    return "\n".join(["", "routes:", *lines])


def _refuse_existing_or_unwritable_out(out: Path | None, *, force: bool) -> None:
    if out is None:
        return
    refuse_options_if(
        (
            out.suffix not in (".ddl", ".avsc"),
            f"--out {out}: the file must end in .ddl, or in .avsc for Avro",
        ),
        (out.exists() and not force, f"--out {out} exists; overwrite it with --force"),
    )
    # Before reading records, which may take long.
    above = next(each for each in out.absolute().parents if each.exists())
    with reporting_write_errors_as_wrong_option("--out", out):
        if not above.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(above))
        if not os.access(above, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(above))


def _parse_delimiter(delimiter: str | None) -> str | None:
    """Return the delimiter of columns; a tab may also be given as a backslash and a t, as shells do not pass a tab."""
    if delimiter == "\\t":
        return "\t"
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise typer.BadParameter(
            f"--delimiter {delimiter!r}: must be one character that is not a quote or a line break, such "
            "as ';', or \\t for a tab"
        )
    return delimiter


def _payloads_with_columns_and_delimiter(
    stream: str | None,
    env: str | None,
    file: Path | None,
    count: int,
    form: Format,
    delimiter: str | None,
    columns: str | None,
    *,
    kafka: str | None,
    kinesis: str | None,
    aws: bool,
) -> tuple[list[bytes], list[str] | None, str]:
    """Return payloads, names of the columns, and delimiter."""
    from millrace.sandbox.records import traffic_targets
    from millrace.sandbox.schemas import read_sample_records

    names = columns.split(",") if columns else None
    if file is None:
        assert stream is not None, "neither stream nor file"
        assert env is not None, "no environment"
        environment = load_environment_with_stream(env, stream)
        payloads = read_sample_records.decompress_all(
            traffic_targets.read_sample_payloads(
                environment, stream, count, kafka=kafka, kinesis=kinesis, aws=aws
            )
        )
        return payloads, names, delimiter or read_sample_records.guess_delimiter(payloads[:20], names)
    headed = form == "csv" and names is None
    blanks = b"\r\n" if form == "csv" else b" \t\r\n"
    payloads = read_sample_records.read_nonempty_lines(file, count + headed, blanks)
    delimiter = delimiter or read_sample_records.guess_delimiter(payloads[:20], names)
    if headed:
        return payloads[1:], read_sample_records.csv_header(file, delimiter), delimiter
    return payloads, names, delimiter


def _print_inferred(inferred: InferredSchema) -> None:
    from millrace.sandbox.schemas.ddl_and_pyspark_types import type_as_ddl

    table = Table(
        "field",
        "type",
        *figure_columns("null", no_wrap=False),
        "examples",
        "look at",
        box=HEAVY_HEAD if sys.stdout.isatty() else None,
        pad_edge=False,
    )
    for f in inferred.fields:
        share = f"{f.absent / inferred.records:.0%}" if inferred.records else ""
        table.add_row(
            Text(f.name, style="bold"),
            type_as_ddl(f.kind),
            share,
            Text(", ".join(f.examples), style="dim"),
            Text("; ".join(f.conflicts), style="yellow"),
        )
    lines: list[Any] = [table]
    if inferred.records:
        unreadable = f"; {inferred.unreadable} unreadable: {inferred.reason}" if inferred.unreadable else ""
        lines.append(Text(f"{inferred.records} records{unreadable}"))
    print_rich(*lines)
