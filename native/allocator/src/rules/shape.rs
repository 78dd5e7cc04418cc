//! How the kubelet will hand cards out, before any card is known.
//!
//! The kubelet allocates container by container. What an ordinary init container had goes to the
//! next ones first, unasked, and in no order that could be foreseen; a sidecar or an app keeps what it
//! takes (devicemanager's `devicesToReuse`, sidecars since Kubernetes 1.29). So "max over init
//! containers, sum over apps" on each card is a plan that cannot be carried out, and where a container asks
//! for fewer cards than are waiting, any of them may come.
//!
//! A pod's device IDs fall into *groups*: those that are first handed out to one container. Who may
//! hold an ID of a group, in which phase of the pod's life, follows from kinds and counts alone, and is the
//! same for all IDs of the group. At any moment one container at most holds an ID, so an ID
//! weighs as much as the heaviest that may hold it; a plan in which all of them find room
//! holds whatever the kubelet picks, and no room is asked for that no pick needs.
//!
//! The phases are the ordinary init containers, one each, and the apps.

use crate::wire::{Ask, Kind};

/// A set of asks or of groups.
pub type Set = u64;

/// IDs that come to the pod together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The ask that they are first handed out to.
    pub ask: usize,
    /// How many.
    pub count: usize,
    /// Groups whose IDs may be in the same container, and so must be of other cards.
    pub apart: Set,
    /// Who may hold such an ID, by phase.
    pub holders: Vec<Set>,
}

/// Where the cards of one ask come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// So many that earlier init containers leave behind.
    pub reused: usize,
    /// And the IDs of this group.
    pub new: Option<usize>,
    /// Groups that the reused ones may be of.
    pub pool: Set,
}

/// A pod's groups and phases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// In the order in which they are handed out.
    pub groups: Vec<Group>,
    /// By ask.
    pub sources: Vec<Source>,
    /// Ordinary init containers, and one.
    pub phases: usize,
    /// Whether the kubelet has any choice.
    pub open: bool,
}

/// What ordinary init containers have left behind so far.
#[derive(Default)]
struct Pool {
    groups: Set,
    /// How many IDs are there, of the groups' more.
    left: usize,
}

impl Shape {
    /// The shape of a pod that asks so.
    pub fn of(asks: &[Ask]) -> Self {
        let phases = asks.iter().filter(|ask| ask.kind == Kind::Init).count() + 1;
        let mut shape = Self { groups: Vec::new(), sources: Vec::new(), phases, open: false };
        let mut pool = Pool::default();
        // By group: sidecars and apps that may have kept an ID of it.
        let mut kept: Vec<Set> = Vec::new();
        let mut phase = 0;
        for (at, ask) in asks.iter().enumerate() {
            let count = ask.cards as usize;
            let reused = count.min(pool.left);
            let possible: usize = members(pool.groups).map(|group| shape.groups[group].count).sum();
            shape.open |= reused > 0 && reused < possible;
            let reach = if reused > 0 { pool.groups } else { 0 };
            let new = (count > reused).then(|| {
                let holders = vec![0; phases];
                shape.groups.push(Group { ask: at, count: count - reused, apart: reach, holders });
                kept.push(0);
                shape.groups.len() - 1
            });
            shape.sources.push(Source { reused, new, pool: reach });
            let touched = reach | new.map_or(0, |group| 1 << group);
            if ask.kind == Kind::Init {
                for (group, kept) in kept.iter().enumerate() {
                    let here = if touched >> group & 1 == 1 { 1 << at } else { 0 };
                    shape.groups[group].holders[phase] = kept | here;
                }
                phase += 1;
                if let Some(group) = new {
                    pool = Pool { groups: pool.groups | 1 << group, left: count };
                }
            } else {
                members(touched).for_each(|group| kept[group] |= 1 << at);
                pool.left -= reused;
                if pool.left == 0 {
                    pool.groups = 0;
                }
            }
        }
        for (group, kept) in shape.groups.iter_mut().zip(kept) {
            group.holders[phases - 1] = kept;
        }
        shape
    }

    /// Deals entries out as planned: in container order, the ones that wait longest first.
    ///
    /// `entries` has the entries of each group; the answer has those of each ask.
    pub fn deal<T: Copy>(&self, asks: &[Ask], entries: &[Vec<T>]) -> Vec<Vec<T>> {
        let mut waiting: Vec<T> = Vec::new();
        let mut dealt = Vec::with_capacity(asks.len());
        for (ask, source) in asks.iter().zip(&self.sources) {
            let mut hand: Vec<T> = waiting[..source.reused].to_vec();
            if ask.kind != Kind::Init {
                waiting.drain(..source.reused);
            }
            if let Some(group) = source.new {
                hand.extend(&entries[group]);
                if ask.kind == Kind::Init {
                    waiting.extend(&entries[group]);
                }
            }
            dealt.push(hand);
        }
        dealt
    }
}

/// The members of a set, smallest first.
pub fn members(set: Set) -> impl Iterator<Item = usize> {
    let mut left = set;
    std::iter::from_fn(move || {
        let first = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (first < 64).then_some(first)
    })
}

/// Whether `good` is true of `hand` with any so many of `pool`.
pub(crate) fn every(
    pool: &[u8],
    count: usize,
    hand: &[u8],
    good: &mut impl FnMut(&[u8]) -> bool,
) -> bool {
    if count == 0 {
        return good(hand);
    }
    (0..pool.len())
        .filter(|at| pool.len() - at >= count)
        .all(|at| every(&pool[at + 1..], count - 1, &[hand, &pool[at..=at]].concat(), good))
}

#[cfg(test)]
mod tests {
    use super::{Shape, members};
    use crate::wire::{Ask, Kind, Memory};

    fn asks(parts: &[(Kind, u32)]) -> Vec<Ask> {
        let ask = |(at, (kind, cards)): (usize, &(Kind, u32))| Ask {
            container: at.to_string(),
            kind: *kind,
            cards: *cards,
            memory: Memory::Mib(1),
            cores: 0,
        };
        parts.iter().enumerate().map(ask).collect()
    }

    fn shape(parts: &[(Kind, u32)]) -> Shape {
        Shape::of(&asks(parts))
    }

    #[test]
    fn apps_alone_have_a_group_each() {
        let shape = shape(&[(Kind::App, 2), (Kind::App, 1)]);
        assert_eq!(shape.phases, 1);
        assert!(!shape.open);
        let counts: Vec<_> = shape.groups.iter().map(|group| (group.count, group.apart)).collect();
        assert_eq!(counts, [(2, 0), (1, 0)]);
        assert_eq!(shape.groups[0].holders, [0b01]);
        assert_eq!(shape.groups[1].holders, [0b10]);
    }

    #[test]
    fn an_app_takes_what_the_init_container_had_and_more() {
        let shape = shape(&[(Kind::Init, 1), (Kind::App, 2), (Kind::App, 1)]);
        assert!(!shape.open);
        assert_eq!(shape.groups.len(), 3);
        assert_eq!(shape.groups[0].holders, [0b001, 0b010]);
        assert_eq!(shape.groups[1].apart, 0b1, "two cards of one container differ");
        assert_eq!(shape.groups[2].apart, 0, "nothing is left to reuse");
    }

    #[test]
    fn where_the_kubelet_may_choose_every_choice_counts() {
        let shape = shape(&[(Kind::Init, 2), (Kind::App, 1), (Kind::App, 1)]);
        assert!(shape.open);
        assert_eq!(shape.groups.len(), 1);
        assert_eq!(shape.groups[0].holders, [0b001, 0b110]);
    }

    #[test]
    fn a_sidecar_keeps_its_card_from_later_init_containers() {
        let shape = shape(&[(Kind::Init, 1), (Kind::Sidecar, 1), (Kind::Init, 1), (Kind::App, 1)]);
        assert!(!shape.open);
        assert_eq!(shape.groups.len(), 2);
        assert_eq!(shape.groups[0].holders, [0b0001, 0b0010, 0b0010]);
        assert_eq!(shape.groups[1].holders, [0b0000, 0b0100, 0b1000]);
        assert_eq!(shape.groups[1].apart, 0);
    }

    #[test]
    fn new_cards_differ_from_all_that_may_be_reused() {
        let shape = shape(&[(Kind::Init, 2), (Kind::Sidecar, 1), (Kind::Init, 2), (Kind::App, 2)]);
        assert!(shape.open);
        assert_eq!(shape.groups[1].apart, 0b1);
        assert_eq!(shape.groups[0].holders, [0b0001, 0b0110, 0b1010]);
        assert_eq!(shape.groups[1].holders, [0b0000, 0b0100, 0b1000]);
    }

    #[test]
    fn entries_are_dealt_in_container_order() {
        let parts = [(Kind::Init, 2), (Kind::Sidecar, 1), (Kind::App, 2)];
        let dealt = shape(&parts).deal(&asks(&parts), &[vec!['a', 'b'], vec!['c']]);
        assert_eq!(dealt, [vec!['a', 'b'], vec!['a'], vec!['b', 'c']]);
    }

    #[test]
    fn sets_have_members() {
        assert_eq!(members(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
        assert_eq!(members(1 << 63).collect::<Vec<_>>(), [63]);
        assert_eq!(members(0).count(), 0);
    }
}
