"""Benchmarks, as ratios in one run: what they measure, how it is kept, and the page of results.

:mod:`.core` runs the core's own benchmark (google-benchmark); :mod:`.opens` measures what a client of an XCache sees with and without the
plugin; :mod:`.endpoint` what serving predictions costs; :mod:`.collector` how many records a second the collector takes. :mod:`.results`
keeps each as JSON under ``run/bench/`` with the command and the machine that made it; :mod:`.page` writes the tables of
``docs/benchmarks.md`` from those files, so that no figure there is written by hand.
"""
