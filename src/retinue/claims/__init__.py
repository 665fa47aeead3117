"""Claims: each sentence of a report that cites something, held against the passage of that source that fits
best.

`claims_of` in `report.py` is the door. Pure functions over text: nothing is fetched and no model is asked
here.
"""
