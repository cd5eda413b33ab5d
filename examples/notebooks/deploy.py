"""Which functions changed with a deploy? Bootstrap intervals of the change, in SQL with DuckDB.

Usage: python3 deploy.py [URL]

A profile is the unit that is drawn: samples of one profile depend on each other.
"""

import duckdb

from samples import read_samples

HOURS = 7 * 24
BEFORE = "1"
AFTER = "2"
DRAWS = 500

SETUP = """
set threads = 1;
select setseed(0.25);

create table functions as
select profile_id::varchar as profile_id, labels['version'] as version, stack[1].function as function,
    sum(value)::double as value
from samples group by all;

create table profiles as
select version, profile_id, sum(value) as total,
    row_number() over (partition by version order by profile_id) - 1 as number,
    count(*) over (partition by version) as profiles
from functions group by version, profile_id;

-- Each draw takes as many profiles of a version as there are, with replacement.
create table draws as
select draw, version, floor(random() * profiles)::bigint as number
from profiles, range($draws) as numbers(draw);

create table drawn as
select draw, version, profile_id, total from draws join profiles using (version, number);
"""

INTERVALS = """
with totals as (
    select draw, version, sum(total) as total from drawn group by all
), shares as (
    select draw, version, function, sum(value) / any_value(totals.total) as share
    from drawn join functions using (version, profile_id) join totals using (draw, version)
    group by all
), changes as (
    select draw, function,
        coalesce(sum(share) filter (version = $after), 0) - coalesce(sum(share) filter (version = $before), 0) as change
    from shares group by all
)
select function, median(change), quantile_cont(change, 0.025) as low, quantile_cont(change, 0.975) as high
from changes group by function order by abs(median(change)) desc, function
"""

samples = read_samples(HOURS, ["profile_id", "labels", "stack", "value"])
database = duckdb.connect()
database.register("samples", samples)
for statement in SETUP.split(";"):
    if statement.strip():
        database.execute(statement, {"draws": DRAWS} if "$draws" in statement else None)

print(f"change of the share of CPU time from version {BEFORE} to {AFTER}, with 95 % intervals")
for function, change, low, high in database.execute(INTERVALS, {"before": BEFORE, "after": AFTER}).fetchall():
    verdict = "changed" if low > 0 or high < 0 else "no evidence"
    print(f"{function:30} {change:+7.2%}  [{low:+.2%}, {high:+.2%}]  {verdict}")
