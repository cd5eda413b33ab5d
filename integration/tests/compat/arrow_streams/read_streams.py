"""Sums the Arrow streams of a folder with pyarrow, Polars and DuckDB, and prints them as JSON."""

import collections
import json
import pathlib
import sys

import duckdb
import polars
import pyarrow

folder = pathlib.Path(sys.argv[1])
names = sorted(path.stem for path in folder.glob("*.arrow"))


def read(name):
    return pyarrow.ipc.open_stream((folder / f"{name}.arrow").read_bytes()).read_all()


def sums(pairs):
    found = collections.Counter()
    for key, value in pairs:
        found[key] += value
    return {key: value for key, value in found.items() if value}


def label(labels, name):
    return dict(labels.items() if isinstance(labels, dict) else labels)[name]


def summary(samples, functions, rows):
    return {
        "self_by_function": sums((row["stack"][0]["function"], row["value"]) for row in samples),
        "by_pod": sums((label(row["labels"], "pod"), row["value"]) for row in samples),
        "total": sum(row["value"] for row in samples),
        "functions": {row["name"]: row["self"] for row in functions if row["self"]},
        "rows": rows,
    }


def with_pyarrow():
    tables = {name: read(name) for name in names}
    rows = {name: len(table) for name, table in tables.items()}
    return summary(tables["samples"].to_pylist(), tables["functions"].to_pylist(), rows)


def with_polars():
    tables = {name: polars.read_ipc_stream(folder / f"{name}.arrow") for name in names}
    rows = {name: len(table) for name, table in tables.items()}
    return summary(tables["samples"].to_dicts(), tables["functions"].to_dicts(), rows)


def with_duckdb():
    database = duckdb.connect()
    for name in names:
        database.register(name, read(name))

    def query(sql):
        return database.sql(sql).fetchall()

    return {
        "self_by_function": dict(query("select stack[1].function, sum(value)::bigint from samples group by all")),
        "by_pod": dict(query("select labels['pod'], sum(value)::bigint from samples group by all")),
        "total": query("select sum(value)::bigint from samples")[0][0],
        "functions": dict(query("select name, self from functions where self <> 0")),
        "rows": {name: query(f'select count(*) from "{name}"')[0][0] for name in names},
    }


print(
    json.dumps(
        {
            "pyarrow": with_pyarrow(),
            "polars": with_polars(),
            "duckdb": with_duckdb(),
            "unit": read("samples").schema.metadata[b"athanor.unit"].decode(),
        }
    )
)
