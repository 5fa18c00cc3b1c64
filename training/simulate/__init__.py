"""Access traces through simulated caches: which policy misses how much, at which size.

In the order of the work:

- :mod:`.trace`: a file becomes arrays, every row checked
- :mod:`.rules`: the rules that a cache keeps: the literature's, or XCache's own
- :mod:`.policies`, :mod:`.xcache`, :mod:`.peers`: what a policy's name stands for under them
- :mod:`.pool`: simulations in worker processes
- :mod:`.store`: the result of each, kept, so that an interrupted comparison goes on
- :mod:`.figures`, :mod:`.costs`: from counts to figures
- :mod:`.ablation`: what each kind of feature is worth to what learns
- :mod:`.seeds`: those of several seeds as one
- :mod:`.compare`: all of these in one call
- :mod:`.tables`, :mod:`.report`, :mod:`.plots`, :mod:`.tracking`: what it leaves: Parquet and CSV, a page, MLflow
- :mod:`.cli`: ``smartcache simulate``, ``smartcache evaluate-policies``
"""
