//! Filter: which nodes can take a pod, and why the others cannot.
//!
//! Filter looks at nodes and remembers verdicts. It ends expired holds and changes nothing else. A pod never stands in
//! its own way: on a node where it has an entry, it is judged as if it were not there.

use crate::engine::Allocator;
use crate::search::effort::Effort;
use crate::speed::verdict::Verdict;
use crate::state::list::List;
use crate::state::names::Numbers;
use crate::wire::Request;
use crate::wire::check;
use hami_limits::InvalidValue;
use std::sync::Arc;

/// Where a pod could go. Nodes are positions in the names that were given, in their order.
#[derive(Debug, Default)]
pub struct Filtered {
    /// Nodes that do.
    pub feasible: Vec<u32>,
    /// Nodes that are full, and why.
    pub failed: Vec<(u32, Arc<str>)>,
    /// Nodes where no eviction would help, and why: they would not do if they were empty either, a quota is
    /// used up, or the namespace's time for looking is.
    pub unresolvable: Vec<(u32, Arc<str>)>,
    /// Some of those that are called full were not looked at: the next time more will be known.
    pub is_partial: bool,
    /// Of the nodes that do.
    pub numbers: Numbers,
}

impl Allocator {
    /// Which of these nodes do, and why the others do not.
    pub fn filter<N: AsRef<str>>(
        &mut self,
        request: &Request,
        names: &[N],
        now_ns: u64,
    ) -> Result<Filtered, InvalidValue> {
        check::request(request)?;
        self.expire(now_ns);
        let numbers = self.names.get_all(names);
        Ok(self.filter_now(request, &numbers, now_ns))
    }

    /// The same of a JSON list.
    pub fn filter_list<'a>(
        &mut self,
        request: &Request,
        json: &'a [u8],
        now_ns: u64,
    ) -> Result<(List<'a>, Filtered), InvalidValue> {
        check::request(request)?;
        self.expire(now_ns);
        let list = List::read(json, &mut self.names)?;
        let filtered = self.filter_now(request, list.numbers(), now_ns);
        Ok((list, filtered))
    }

    /// The same of all nodes, by name, at a desk: nobody else waits, so that all of them are looked at at once.
    #[allow(clippy::type_complexity, reason = "all names, and where the pod could go")]
    pub fn filter_all(
        &mut self,
        request: &Request,
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

    fn filter_now(&mut self, request: &Request, numbers: &Numbers, now_ns: u64) -> Filtered {
        let mut effort = self.spending.question(&request.pod.namespace, now_ns);
        let filtered = self.filter_within(request, numbers, &mut effort, now_ns);
        self.spending.count(&request.pod.namespace, &effort, now_ns);
        filtered
    }

    fn filter_within(
        &mut self,
        request: &Request,
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
