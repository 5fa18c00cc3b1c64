"""smartcache: an XRootD XCache that learns what is worth keeping.

The subpackages follow the main path, packet to answer:

- :mod:`smartcache.ingestion`: monitoring packets become records on Kafka
- :mod:`smartcache.preprocessing`: records become the access table and training sets (Spark)
- :mod:`smartcache.training`: training sets become a Keras model in MLflow
- :mod:`smartcache.inference`: a registered model is gated, promoted and served
- :mod:`smartcache._core`: the C++ core (history, features), the same code that runs in the XCache plugin
- :mod:`smartcache.demo`: all of it on one machine
"""

__version__ = "0.1.0"
