"""Cards, limits and usage as plain data and pure functions. The types of pods are in ``pods``."""

from hami_py.model.cards import Card, visible
from hami_py.model.events import (
    Event,
    EventKind,
    ProcessKey,
    ProcessSnapshot,
    SliceSnapshot,
    changes,
)
from hami_py.model.gangs import gang_of_namespace, gang_of_user
from hami_py.model.limits import (
    LEVELS,
    MODES,
    PRIORITIES,
    CardLimit,
    Level,
    Limits,
    Mode,
    Priority,
    TimeLevel,
    lowest,
    lowest_priority,
    lowest_share,
)
from hami_py.model.names import check_name, check_object_name, legible
from hami_py.model.plan import Plan, ineffective, plan, resized, too_low
from hami_py.model.request import (
    UNLIMITED,
    WHOLE,
    LimitRequest,
    Shares,
    Sizes,
    parse_arguments,
    parse_devices,
    parse_options,
)
from hami_py.model.usage import (
    CardUsage,
    NodeCard,
    ProcessUsage,
    Rates,
    SliceCard,
    SliceInfo,
    SliceProcess,
    SliceState,
    SliceUse,
    Summary,
    Usage,
    Use,
    slice_card,
    use_of,
)
