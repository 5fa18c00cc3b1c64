"""The main path on one machine: a plain and a smart XCache side by side, on real servers.

- :mod:`.plan`: what a run is made of: sizes, times, ports; the quick one and the full one
- :mod:`.workload`: an HEP-like population of files and the opens of its users
- :mod:`.clients`: real XRootD clients that make those opens at both caches
- :mod:`.site`: the servers, started and stopped together
- :mod:`.run`: learn, train and promote, decide, report
- :mod:`.measure`: what the servers counted; :mod:`.report`: the table, the plots and the page
"""
