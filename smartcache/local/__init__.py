"""The outside servers of smartcache, started on this machine: the one way that the demo and every test start them.

- :mod:`.paths`: where set-up has put what they are made of
- :mod:`.ports`: which loopback ports they get
- :mod:`.process`: a server's life: start, ready, last words, stop
- :mod:`.kafka`, :mod:`.xrootd`, :mod:`.mlflow`: the servers
"""
