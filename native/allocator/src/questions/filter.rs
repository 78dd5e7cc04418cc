//! Filter: which nodes fit a pod, and why the others do not.
//!
//! Filter judges nodes and caches the verdicts. It ends expired holds and changes nothing else. If
//! the pod itself has an allocation on a node, the node is judged without it.

use crate::engine::Allocator;
use crate::search::effort::Effort;
use crate::speed::verdict::Verdict;
use crate::state::list::List;
use crate::state::names::Numbers;
use crate::wire::PodRequest;
use crate::wire::check;
use hami_limits::InvalidValue;
use std::sync::Arc;

/// The result of a filter. Nodes are positions in the given list of names.
#[derive(Debug, Default)]
pub struct Filtered {
    /// The nodes that fit.
    pub feasible: Vec<u32>,
    /// The nodes that are full, with the reason.
    pub failed: Vec<(u32, Arc<str>)>,
    /// The nodes where no eviction would help, with the reason: the pod would not fit the empty
    /// node, a quota is used up, or the search steps of the namespace are.
    pub unresolvable: Vec<(u32, Arc<str>)>,
    /// Whether some nodes in `failed` were not searched, so that the next filter can find more.
    pub is_partial: bool,
    /// The numbers of the nodes that fit.
    pub numbers: Numbers,
}

impl Allocator {
    /// Filters nodes by name.
    pub fn filter<N: AsRef<str>>(
        &mut self,
        request: &PodRequest,
        names: &[N],
        now_ns: u64,
    ) -> Result<Filtered, InvalidValue> {
        check::request(request)?;
        self.expire(now_ns);
        let numbers = self.names.get_all(names);
        Ok(self.filter_now(request, &numbers, now_ns))
    }

    /// Filters a JSON list of names.
    pub fn filter_list<'a>(
        &mut self,
        request: &PodRequest,
        json: &'a [u8],
        now_ns: u64,
    ) -> Result<(List<'a>, Filtered), InvalidValue> {
        check::request(request)?;
        self.expire(now_ns);
        let list = List::read(json, &mut self.names)?;
        let filtered = self.filter_now(request, list.numbers(), now_ns);
        Ok((list, filtered))
    }

    /// Filters all nodes, ordered by name, on a copy of the state where no other question waits:
    /// without a limit of steps.
    #[allow(clippy::type_complexity, reason = "all names, and where the pod could go")]
    pub fn filter_all(
        &mut self,
        request: &PodRequest,
        now_ns: u64,
    ) -> Result<(Vec<Arc<str>>, Filtered), InvalidValue> {
        check::request(request)?;
        self.expire(now_ns);
        let names: Vec<Arc<str>> =
            self.present().iter().map(|number| self.node(*number).name.clone()).collect();
        let numbers = self.names.get_all(&names);
        let filtered = self.filter_within(request, &numbers, &mut Effort::for_desk(), now_ns);
        Ok((names, filtered))
    }

    fn filter_now(&mut self, request: &PodRequest, numbers: &Numbers, now_ns: u64) -> Filtered {
        let mut effort = self.spending.question(&request.pod.namespace, now_ns);
        let filtered = self.filter_within(request, numbers, &mut effort, now_ns);
        self.spending.count(&request.pod.namespace, &effort, now_ns);
        filtered
    }

    fn filter_within(
        &mut self,
        request: &PodRequest,
        numbers: &Numbers,
        effort: &mut Effort,
        now_ns: u64,
    ) -> Filtered {
        let mut filtered = Filtered::default();
        let whole =
            self.judge(request, numbers.each(), effort, now_ns, |at, verdict| match verdict {
                Verdict::Fits(_) => filtered.feasible.push(at),
                Verdict::Full(why) => filtered.failed.push((at, why.clone())),
                Verdict::Unresolvable(why) => filtered.unresolvable.push((at, why.clone())),
            });
        filtered.is_partial = !whole;
        filtered.numbers = numbers.of(&filtered.feasible);
        filtered
    }
}
