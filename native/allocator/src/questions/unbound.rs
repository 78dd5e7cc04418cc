//! Finds out whether a pod is rejected only because cards are held or reserved for other pods.
//!
//! A reserved card is bound soon, and a held card is bound or released soon. Kubernetes may have no
//! event for that, so a pod that only waits for such cards must be retried.

use crate::engine::Allocator;
use crate::questions::judge;
use crate::rules::class::Class;
use crate::rules::quota;
use crate::rules::quota::QuotaRoom;
use crate::search::effort::Effort;
use crate::wire::PodRequest;
use crate::wire::check;
use hami_limits::InvalidValue;
use std::collections::HashSet;

impl Allocator {
    /// Whether one of these nodes would fit without the cards that are reserved, or held until
    /// `soon_ns` at most. Cards that are held for longer count as allocated. If there are no steps
    /// left to search all such nodes, the answer is yes.
    pub fn fits_without_unbound<N: AsRef<str>>(
        &mut self,
        request: &PodRequest,
        names: &[N],
        now_ns: u64,
        soon_ns: u64,
    ) -> Result<bool, InvalidValue> {
        check::request(request)?;
        let mut effort = self.spending.question(&request.pod.namespace, now_ns);
        let found = self.find_without_unbound(request, names, soon_ns, &mut effort);
        self.spending.count(&request.pod.namespace, &effort, now_ns);
        Ok(found)
    }

    fn find_without_unbound<N: AsRef<str>>(
        &self,
        request: &PodRequest,
        names: &[N],
        soon_ns: u64,
        effort: &mut Effort,
    ) -> bool {
        let others =
            self.allocations.unbound(soon_ns).filter(|other| other.pod.uid != request.pod.uid);
        let mut others: Vec<(u32, &str)> =
            others.map(|other| (other.node, other.pod.uid.as_str())).collect();
        if others.is_empty() {
            return false;
        }
        others.sort_unstable();
        let mut class = Class::of(request);
        class.meet_models(&self.models);
        // A quota counts on all nodes, also if what is held or reserved is on a node that would not
        // fit.
        let room = self.room(request, &uids(&others));
        let is_over = |room: Option<&QuotaRoom<'_>>| {
            room.and_then(|room| quota::over(&class, room)).is_some()
        };
        if is_over(room.as_ref()) {
            return false;
        }
        if is_over(self.room(request, &[]).as_ref()) {
            return true;
        }
        let names: HashSet<&str> = names.iter().map(AsRef::as_ref).collect();
        let mut chosen = Vec::new();
        others.chunk_by(|one, other| one.0 == other.0).any(|here| {
            let node = here[0].0;
            // A needless retry costs a moment; a missing one costs minutes.
            names.contains(&*self.node(node).name)
                && (effort.is_spent()
                    || self.with_view(request, node, &uids(here), |view| {
                        let (effort, chosen) = (&mut *effort, &mut chosen);
                        judge::try_fit(&class, view, room.as_ref(), effort, chosen).is_ok()
                    }))
        })
    }
}

fn uids<'a>(of: &[(u32, &'a str)]) -> Vec<&'a str> {
    of.iter().map(|(_, uid)| *uid).collect()
}
