"""A registered model becomes a served one.

- :mod:`.bundle`: the bundle (contract 5): read, check, write, name
- :mod:`.export`: a Keras model becomes a bundle
- :mod:`.registry`: MLflow's model registry: versions, aliases, artifacts
- :mod:`.gates`: what a version must pass
- :mod:`.promote`: the alias ``champion`` moves forth and back
- :mod:`.serving`: the endpoint, seen from here: upload, predict, delete
- :mod:`.install`: bundles on this host's disk and the link ``current``
- :mod:`.watch`: the loop that makes the champion live
- :mod:`.endpoint`: ``smartcache endpoint`` starts the server of ``inference/server`` (Go)
- :mod:`.cli`: the subcommands

TensorFlow and MLflow are imported inside functions only: the command line starts without them, and all but :mod:`.export` works without
TensorFlow.
"""
