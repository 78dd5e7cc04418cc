//! Whether the driver has freed the memory of a dead process.
//!
//! The grants page has the answer: the coordinator of a node, or `hami run`, compares NVML's lists
//! with the dead processes, and writes which of them have *departed*, that is, whose memory is
//! free. Without them the answer is unknown, and the memory counts as free after the account's
//! grace period.
//!
//! The library does not ask NVML itself. That could take the loader's lock, which another thread
//! may hold while it waits for this one, and NVML hangs if a card fails.

use hami_account::{Account, Dead, Departed};
use hami_limits::clock::monotonic_ns;
use hami_limits::grants::{GrantsView, SWEEP_SILENCE_NS};

/// How long after the last sweep the grants page still decides. A sweeper or coordinator that is
/// restarted is silent for about as long as `SWEEP_SILENCE_NS`. So from then on the grace period
/// runs once more, before memory that the last sweep saw in use counts as free.
const REPORTED_NS: u64 = SWEEP_SILENCE_NS + Account::GRACE.as_nanos() as u64;

/// Whether the driver has freed the memory of this dead process. It is called only when a slot is
/// reaped whose process still holds bytes.
pub(crate) fn departed(dead: &Dead, grants: Option<&GrantsView>) -> Departed {
    let Some(grants) = grants else { return Departed::Unknown };
    let (now, swept_at) = (monotonic_ns(), grants.swept_at());
    // A time in the future was written before a reboot.
    if swept_at == 0 || swept_at > now || now - swept_at > REPORTED_NS {
        return Departed::Unknown;
    }
    let is_free = dead.joined_at != 0 && grants.departed(dead.slot) == dead.joined_at;
    if is_free { Departed::Yes } else { Departed::No }
}
