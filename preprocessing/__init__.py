"""From records on Kafka to the access table, and from the access table to training sets. All of it is Spark.

The path, file by file:

- :mod:`.records`: the records as Spark reads them, and what makes one malformed
- :mod:`.join`: which decision and which pfc record belong to a client's open; plain Python, no Spark
- :mod:`.streaming`: ``smartcache stream``: Kafka, the join, the access table, the jobs table, the quarantine
- :mod:`.popularity`, :mod:`.side_tables`: the dataset side table, and its versions that are kept
- :mod:`.background`: what the stream does beside its queries: the side table, compaction
- :mod:`.access`: the access table's columns, and a reader for those without Spark
- :mod:`.table`, :mod:`.storage`: which files a table is made of, on any file system
- :mod:`.retention`: ``smartcache retain``: days that are over are forgotten
- :mod:`.compaction`: ``smartcache compact``: small files of days that are over become few
- :mod:`.stats`: ``smartcache stats``: tables and plots of what a site's caches and jobs did
- :mod:`.dataset`: ``smartcache build-dataset``: access table, features, labels, split
- :mod:`.manifest`: what a training set says about itself
- :mod:`.core`: the one way to the C++ core from here
- :mod:`.session`: the one way to a SparkSession
- :mod:`.cli`, :mod:`.table_cli`, :mod:`.terminal`: the commands
"""
