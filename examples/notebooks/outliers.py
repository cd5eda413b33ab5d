"""Which pods are outliers? Compares the share of each function between pods, with pyarrow and pandas.

Usage: python3 outliers.py [URL]
"""

import pandas

from samples import label, leaf_function, map_values, read_samples

HOURS = 24
# Usual limit of the modified z-score.
MAX_SCORE = 3.5
# Smaller differences of the share do not matter, however unusual they are.
MIN_DIFFERENCE = 0.01

table = read_samples(HOURS, ["labels", "stack", "value"])
frame = pandas.DataFrame(
    {
        "pod": map_values(table["labels"], label("pod")).to_pandas(),
        "function": map_values(table["stack"], leaf_function).to_pandas(),
        "value": table["value"].to_pandas(),
    }
)

values = frame.pivot_table(index="pod", columns="function", values="value", aggfunc="sum", fill_value=0)
shares = values.div(values.sum(axis=1), axis=0)
difference = shares - shares.median()
deviation = difference.abs().median().clip(lower=1e-6)
score = 0.6745 * difference / deviation

is_outlier = (score.abs() > MAX_SCORE) & (difference.abs() > MIN_DIFFERENCE)
outliers = difference.where(is_outlier).stack().dropna().sort_values(key=abs, ascending=False)
print(f"{len(shares)} pods, {len(shares.columns)} functions")
for (pod, function), change in outliers.items():
    share = shares.loc[pod, function]
    print(f"{pod}  {function}  {share:.1%} of its CPU time, {change:+.1%} against the median pod")
