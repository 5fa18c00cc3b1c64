"""What smartcache needs around it, and what of that is here: ``smartcache doctor`` shows it.

- :mod:`.finding`: one thing that was looked at
- :mod:`.machine`: programs, headers, libraries, the servers' user, Python packages
- :mod:`.checkout`: what set-up would do, from the files that it works by: Debian packages, ``uv.lock``, jars, what was built
"""
