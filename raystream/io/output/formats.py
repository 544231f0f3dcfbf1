"""How parts are stored: as Parquet or as CSV."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from raystream.errors import GraphError, OutputError
from raystream.io.files.declared import file_schema
from raystream.io.files.nested import Form
from raystream.io.output.sink import PartSink
from raystream.schema.records import record_schema


@dataclass(frozen=True)
class ParquetForm:
    """Compressed with zstd."""

    suffix: ClassVar[str] = ".parquet"
    values: ClassVar[Form] = "typed"

    def write(self, table: Any, path: Path) -> None:
        import pyarrow.parquet as pq

        # Dictionaries of numbers take about half the time of writing, and save a few percent.
        texts = [f.name for f in table.schema if not pa.types.is_primitive(f.type)]
        pq.write_table(table, path, compression="zstd", use_dictionary=texts or False)

    def read(self, path: Path, schema: Any) -> Any:
        import pyarrow.parquet as pq

        return pq.read_table(path, schema=schema)


@dataclass(frozen=True)
class CsvForm:
    """Text is quoted, None is an empty cell."""

    header: bool = True
    delimiter: str = ","
    suffix: ClassVar[str] = ".csv"
    values: ClassVar[Form] = "text"

    def write(self, table: Any, path: Path) -> None:
        import pyarrow.csv as pc

        options = pc.WriteOptions(include_header=self.header, delimiter=self.delimiter)
        try:
            pc.write_csv(table, path, options)
        except pa.ArrowInvalid as error:
            raise _no_text(table) or error from None

    def read(self, path: Path, schema: Any) -> Any:
        import pyarrow.csv as pc

        table = pc.read_csv(
            path,
            read_options=pc.ReadOptions(column_names=schema.names, skip_rows=int(self.header)),
            parse_options=pc.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=pc.ConvertOptions(
                column_types=schema,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        return table.cast(schema)


def _no_text(table: Any) -> OutputError | None:
    """What is raised for bytes that are no text, if a table holds any."""
    for f in table.schema:
        if pa.types.is_binary(f.type):
            for value in table[f.name].to_pylist():
                try:
                    bytes(value or b"").decode()
                except UnicodeDecodeError:
                    return OutputError(
                        f"A CSV file cannot hold {value!r:.80} in {f.name!r}: it is not UTF-8.",
                        hint="Write it with rs.io.parquet or rs.io.json.",
                    )
    return None


class ParquetParts(PartSink):
    """A sink of files in Parquet."""

    def accept(self, record: type[Any], /) -> None:
        """Refuse records that have no columns in a file."""
        super().accept(record)
        file_schema(record_schema(record))


class CsvParts(PartSink):
    """A sink of files in CSV."""

    def accept(self, record: type[Any], /) -> None:
        """Refuse records that CSV cannot hold."""
        super().accept(record)
        schema = record_schema(record)
        for f in schema.fields:
            if f.kind == "object":
                raise GraphError(
                    f"A CSV file cannot hold {schema.name}.{f}, only plain values.",
                    hint="Write it with rs.io.parquet.",
                )
        if len(schema.fields) == 1 and schema.fields[0].optional:
            raise GraphError(
                f"A CSV file cannot hold None in {schema.name}.{schema.fields[0]}, which is alone:"
                " that would be an empty line, and an empty line is no row.",
                hint="Write it with rs.io.parquet, or give the record another field.",
            )
