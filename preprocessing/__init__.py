"""From records on Kafka to the access table, and from the access table to training sets. All of it is Spark.

The path, file by file:

- :mod:`.records`: the three records as Spark reads them, and what makes one malformed
- :mod:`.join`: which decision and which pfc record belong to a client's open; plain Python, no Spark
- :mod:`.streaming`: ``smartcache stream``: Kafka, the join, the access table, the quarantine
- :mod:`.access`: the access table's columns, and a reader for those without Spark
- :mod:`.dataset`: ``smartcache build-dataset``: access table, features, labels, split
- :mod:`.manifest`: what a training set says about itself
- :mod:`.core`: the one way to the C++ core from here
- :mod:`.session`: the one way to a SparkSession
- :mod:`.cli`: the commands
"""
