//! Whether a pod is refused for nothing but promises of the moment.
//!
//! What is reserved is bound soon, and what is held for a moment is bound or free again: nothing may be seen to happen then,
//! so a pod that waits for that alone has to be tried again of itself.

use crate::engine::Allocator;
use crate::questions::judge;
use crate::rules::class::Class;
use crate::rules::quota;
use crate::rules::quota::Room;
use crate::search::effort::Effort;
use crate::wire::Request;
use crate::wire::check;
use hami_limits::InvalidValue;
use std::collections::HashSet;

impl Allocator {
    /// Whether one of these nodes would do, were it not for cards that are reserved, or held until `soon_ns` at most:
    /// what is promised so is bound in a moment, or free again without an event that anybody hears of. What is held
    /// for longer is as good as given. Where not all nodes with such cards can be looked at in time, one of them may do.
    pub fn only_promised<N: AsRef<str>>(
        &mut self,
        request: &Request,
        names: &[N],
        now_ns: u64,
        soon_ns: u64,
    ) -> Result<bool, InvalidValue> {
        check::request(request)?;
        let mut effort = self.spending.question(&request.pod.namespace, now_ns);
        let found = self.is_only_promised(request, names, soon_ns, &mut effort);
        self.spending.count(&request.pod.namespace, &effort, now_ns);
        Ok(found)
    }

    fn is_only_promised<N: AsRef<str>>(
        &self,
        request: &Request,
        names: &[N],
        soon_ns: u64,
        effort: &mut Effort,
    ) -> bool {
        let others = self.book.promised(soon_ns).filter(|other| other.pod.uid != request.pod.uid);
        let mut others: Vec<(u32, &str)> =
            others.map(|other| (other.node, other.pod.uid.as_str())).collect();
        if others.is_empty() {
            return false;
        }
        others.sort_unstable();
        let mut class = Class::of(request);
        class.meet_models(&self.models);
        // A namespace's quota may be promised on nodes that would not do, and stands in the way on all.
        let room = self.room(request, &uids(&others));
        let is_over =
            |room: Option<&Room<'_>>| room.and_then(|room| quota::over(&class, room)).is_some();
        if is_over(room.as_ref()) {
            return false;
        }
        if is_over(self.room(request, &[]).as_ref()) {
            return true;
        }
        let names: HashSet<&str> = names.iter().map(AsRef::as_ref).collect();
        let mut entries = Vec::new();
        others.chunk_by(|one, other| one.0 == other.0).any(|here| {
            let node = here[0].0;
            // A pod that is tried again in vain has lost a moment, one that is not tried again minutes.
            names.contains(&*self.node(node).name)
                && (effort.is_spent()
                    || self.with_view(request, node, &uids(here), |view| {
                        let (effort, entries) = (&mut *effort, &mut entries);
                        judge::try_fit(&class, view, room.as_ref(), effort, entries).is_ok()
                    }))
        })
    }
}

fn uids<'a>(of: &[(u32, &'a str)]) -> Vec<&'a str> {
    of.iter().map(|(_, uid)| *uid).collect()
}
