"""What does each package cost over a week? Sums CPU time by package and day, with Polars.

Usage: python3 cost_per_package.py [URL]
"""

import polars

from samples import leaf_function, map_values, read_samples

HOURS = 7 * 24
PRICE_PER_CPU_HOUR = 0.04
NANOSECONDS_PER_HOUR = 3_600 * 1_000_000_000

table = read_samples(HOURS, ["time", "stack", "value"])
frame = polars.DataFrame(
    {
        "time": polars.from_arrow(table["time"]),
        "function": polars.from_arrow(map_values(table["stack"], leaf_function)),
        "nanoseconds": polars.from_arrow(table["value"]),
    }
)

# shop/pricing.(*Engine).Quote belongs to shop/pricing.
package = polars.col("function").str.extract(r"^((?:.*/)?[^./]+)").alias("package")
by_day = (
    frame.with_columns(package, day=polars.col("time").dt.date())
    .group_by("package", "day")
    .agg(polars.col("nanoseconds").sum())
)
by_package = (
    by_day.group_by("package")
    .agg(polars.col("nanoseconds").sum(), busiest_day=polars.col("day").sort_by("nanoseconds").last())
    .sort("nanoseconds", "package", descending=[True, False])
)

total = by_package["nanoseconds"].sum()
print(f"{by_day['day'].n_unique()} days, {total} nanoseconds of CPU time")
for name, nanoseconds, busiest_day in by_package.iter_rows():
    hours = nanoseconds / NANOSECONDS_PER_HOUR
    cost = hours * PRICE_PER_CPU_HOUR
    print(f"{name:20} {nanoseconds / total:6.1%} {hours:9.4f} CPU hours {cost:9.5f} $  most on {busiest_day}")
