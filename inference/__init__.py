"""A registered model becomes a served one.

- :mod:`.bundle`: the bundle (contract 5): read, check, write, name
- :mod:`.export`: a Keras model becomes a bundle
- :mod:`.registry`: MLflow's model registry: versions, aliases, artifacts
- :mod:`.gates`, :mod:`.replay`, :mod:`.latency`: what a version must pass; :mod:`.gate_report`: what they said, in MLflow
- :mod:`.promote`: the alias ``champion`` moves forth and back
- :mod:`.serving`: the endpoint, seen from here: upload, predict, delete
- :mod:`.rollout`: many endpoints, each with the right version
- :mod:`.install`: bundles on this host's disk and the link ``current``
- :mod:`.watch`: the loop that makes the champion live
- :mod:`.endpoint`: ``smartcache endpoint`` starts the server of ``inference/server`` (Go)
- :mod:`.cli`: the subcommands

TensorFlow and MLflow are imported inside functions only: the command line starts without them, and all but :mod:`.export` works without
TensorFlow.
"""
