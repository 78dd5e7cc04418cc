"""The webhook's decision about a new pod: accept, change or refuse. Pure, without I/O.

``admit`` reads the pod's request and then checks what could defeat a limit:

- ``metadata``: annotations and labels;
- ``containers``: privileges, the loader's variables, sizes;
- ``environment``: the variables that carry the limits, and those that the pod sets itself;
- ``mounts``: volumes at or beside the files that enforce the limits; the library's own volumes.

``admit_others`` applies the same rules to pods whose cards another allocator allocates.

Each result is a ``Finding``. ``hami_py/webhook/patch.py`` turns an ``Admission`` into a patch.
"""
