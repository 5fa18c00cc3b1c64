"""Monitoring packets become records on Kafka: the collector, and the parsers it is made of.

In the order that a packet takes:

- :mod:`.receiver`: UDP sockets with a kernel buffer that was checked, read in batches
- :mod:`.gstream`: pfc's g-stream (JSON lines) to ``xcache.pfc.v1``
- :mod:`.fstream`: XRootD's binary f-stream and map packets, parsed; :mod:`.opens` joins them to ``xcache.fstream.v1``
- :mod:`.decision`: the plugin's decision log to ``xcache.decision.v1``
- :mod:`.sequence`: lost, late and duplicate packets, told apart
- :mod:`.pseudonym`: what stands in for a user and a client host
- :mod:`.sink`: Kafka; :mod:`.metrics`: counters for Prometheus
- :mod:`.collector`: all of it as one process; :mod:`.cli`: ``smartcache collect``

Nothing is imported here, so that a parser can be used without a broker client.
"""
