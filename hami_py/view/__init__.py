"""A read-only web page of what cards do: of a cluster, or of one machine.

In a cluster the server has no rights of its own: each user sees what the user's own token may see.
It follows the cluster once for each token, and a page asks it for changes.
"""

from hami_py.view.service import LocalView, View, ViewSettings
