"""Sums and joins over a block's files, by an engine that knows nothing of us. Prints JSON for the test to compare."""
import json
import sys

import duckdb

folder = sys.argv[1]
db = duckdb.connect()
for name in ["series", "profiles", "samples", "stacks", "locations", "functions", "rollup", "index"]:
    db.execute(f"create view \"{name}\" as select * from read_parquet('{folder}/{name}.parquet')")


def show(query):
    print(json.dumps(db.execute(query).fetchall()))


# By tenant, pod and type, through both joins; then the same from the profiles and from the roll-up.
by_series = """
    select tenant, labels['pod'], sample_type, sum({value})::bigint
    from {rows} join series using (series) group by all order by all"""
show(by_series.format(value="samples.value", rows="samples join profiles using (profile)"))
show(by_series.format(value="value", rows="profiles"))
show(by_series.format(value="value", rows="rollup"))
# Self values by leaf function.
show(
    """
    select tenant, sample_type, name, sum(samples.value)::bigint
    from samples join profiles using (profile) join series using (series) join stacks using (stack)
    join locations using (location)
    join functions using (function) where depth = 0 group by all having sum(samples.value) <> 0 order by all"""
)
# Profiles by series. A row of a downsampled tier adds up several.
columns = [column[0] for column in db.execute("describe profiles").fetchall()]
show(by_series.format(value="records" if "records" in columns else "1", rows="profiles"))
