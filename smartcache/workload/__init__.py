"""Populations of files and the accesses that users and productions make to them, drawn from a seed: traces, and what the demo's clients do.

- :mod:`.agenda`: many streams of events as one, in the order of time
- :mod:`.draw`: what is drawn alike everywhere: names, sizes, counts
- :mod:`.datasets`: datasets whose files can be listed again and again without being kept
- :mod:`.parameters`: parameters with meaning, bounds and source; texts become values
- :mod:`.campaigns`, :mod:`.chaotic`, :mod:`.production`, :mod:`.sparse`, :mod:`.site`: the kinds of workload
- :mod:`.kinds`: all of them by name, with their tables
- :mod:`.write`: a workload as a Parquet trace
- :mod:`.cli`: ``smartcache generate-trace``
"""
