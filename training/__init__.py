"""Training sets become a Keras model in MLflow.

- :mod:`.dataset`: a training set (contract 4) becomes arrays
- :mod:`.survival`: time to the next open in buckets: targets, loss, base rates; what censoring means for each
- :mod:`.model`: the network
- :mod:`.evaluate`: what the test part says about it
- :mod:`.train`: one training, from folder to model and bundle
- :mod:`.record`: that training in MLflow: parameters, metrics, artifacts, the registered version
- :mod:`.simulate`: which cache policy misses how much, by simulation (``smartcache simulate``)
- :mod:`.cli`: ``smartcache train``

TensorFlow, Keras and MLflow are imported inside functions only: the command line starts without them.
"""
