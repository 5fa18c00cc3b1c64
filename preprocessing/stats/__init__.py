"""``smartcache stats``: what a site's access table and job monitoring say, for each day with the days before it.

- :mod:`.moving`: sums over a window of days, from sums of single days
- :mod:`.opens`: a cache's requests, what was fetched for them, what of it was used
- :mod:`.jobs`: workflows by dataset, CPU efficiency by where the input was
- :mod:`.measure`: all of it, as tables
- :mod:`.tables`, :mod:`.report`: the tables as files, and as one HTML page with plots
- :mod:`.cli`: the command

Spark gives sums by day, cache and data tier; only those come to the driver.
"""
