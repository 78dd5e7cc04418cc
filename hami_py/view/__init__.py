"""A read-only web page of what cards do: of a cluster, or of one machine.

In a cluster the server has no rights of its own: each user sees what the user's own token may see.
It follows the cluster once for each token, and a page asks it for changes.

| module | contains |
|---|---|
| ``picture`` | what the page shows, as types that are also the JSON; pure |
| ``events`` | the events of a cluster that are about cards |
| ``session`` | follows a cluster for one token |
| ``sessions`` | the sessions of all users; bounded |
| ``local`` | reads one machine |
| ``application`` | routes, methods and headers |
| ``service`` | the listener |
| ``page.html``, ``page.css``, ``*.js`` | the page |
"""

from hami_py.view.service import LocalView, View, ViewSettings
