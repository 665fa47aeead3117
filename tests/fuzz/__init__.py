"""Fuzz targets: what reads hostile bytes, held against an oracle that can say no.

A target is a module here with

    SEEDS   a few inputs to begin with
    check   takes any bytes, and raises if a promise was broken

and its name and what it watches in `driver.TARGETS`. `test_fuzz.py` runs each for a moment, `scripts/fuzz.sh` for as long as you like.
"""
