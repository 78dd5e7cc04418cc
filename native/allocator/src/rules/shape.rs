//! How the kubelet will distribute device IDs among the containers of a pod.
//!
//! The kubelet allocates devices container by container. The devices of an ordinary init container
//! are reused first by the containers after it, in an order that cannot be predicted. A sidecar or
//! an app container keeps its devices (see `devicesToReuse` in the kubelet's device manager;
//! sidecars since Kubernetes 1.29). So it is not enough to reserve the maximum over init containers
//! and the sum over apps on each card: the kubelet may combine containers and cards in another way.
//! If a container requests fewer cards than can be reused, it may get any of them.
//!
//! A *group* is the device IDs that are first allocated to one container. Which containers may hold
//! an ID of a group, and in which phase of the pod, follows from the kinds and counts alone, and is
//! the same for all IDs of the group. At most one container holds an ID at a time. So an ID counts
//! as much as the largest container that may hold it. If all IDs have room in this way, the pod
//! fits whatever the kubelet picks, and no more room is reserved than some pick needs.
//!
//! The phases of a pod are its ordinary init containers, one each, and then the apps.

use crate::wire::{ContainerRequest, Kind};

/// A set of containers or of groups.
pub type Set = u64;

/// The device IDs that are first allocated to one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The index of that container.
    pub container: usize,
    /// The number of IDs.
    pub count: usize,
    /// The groups whose IDs may be in the same container. Their cards must be different ones.
    pub apart: Set,
    /// The containers that may hold an ID of the group, by phase.
    pub holders: Vec<Set>,
}

/// Where the device IDs of one container come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The number of IDs that earlier init containers leave.
    pub reused: usize,
    /// The group of its new IDs.
    pub new: Option<usize>,
    /// The groups that the reused IDs may belong to.
    pub pool: Set,
}

/// The groups and phases of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The groups in the order of allocation.
    pub groups: Vec<Group>,
    /// The sources by container.
    pub sources: Vec<Source>,
    /// The number of phases: the ordinary init containers, and one for the apps.
    pub phases: usize,
    /// Whether the kubelet has a choice.
    pub has_choice: bool,
}

/// The IDs that ordinary init containers have left so far.
#[derive(Default)]
struct Pool {
    groups: Set,
    /// The number of IDs. The groups may have more.
    left: usize,
}

impl Shape {
    /// The shape of a pod with these containers.
    pub fn of(containers: &[ContainerRequest]) -> Self {
        let phases = containers.iter().filter(|container| container.kind == Kind::Init).count() + 1;
        let mut shape = Self { groups: Vec::new(), sources: Vec::new(), phases, has_choice: false };
        let mut pool = Pool::default();
        // The sidecars and apps that may have kept an ID, by group.
        let mut kept: Vec<Set> = Vec::new();
        let mut phase = 0;
        for (at, container) in containers.iter().enumerate() {
            let count = container.cards as usize;
            let reused = count.min(pool.left);
            let possible: usize = members(pool.groups).map(|group| shape.groups[group].count).sum();
            shape.has_choice |= reused > 0 && reused < possible;
            let reach = if reused > 0 { pool.groups } else { 0 };
            let new = (count > reused).then(|| {
                let holders = vec![0; phases];
                shape.groups.push(Group {
                    container: at,
                    count: count - reused,
                    apart: reach,
                    holders,
                });
                kept.push(0);
                shape.groups.len() - 1
            });
            shape.sources.push(Source { reused, new, pool: reach });
            let touched = reach | new.map_or(0, |group| 1 << group);
            if container.kind == Kind::Init {
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

    /// Distributes cards among the containers as planned: in the order of the containers, the IDs
    /// that have waited longest first. `by_group` has the cards of each group; the result has those
    /// of each container.
    pub fn deal<T: Copy>(
        &self,
        containers: &[ContainerRequest],
        by_group: &[Vec<T>],
    ) -> Vec<Vec<T>> {
        let mut waiting: Vec<T> = Vec::new();
        let mut dealt = Vec::with_capacity(containers.len());
        for (container, source) in containers.iter().zip(&self.sources) {
            let mut hand: Vec<T> = waiting[..source.reused].to_vec();
            if container.kind != Kind::Init {
                waiting.drain(..source.reused);
            }
            if let Some(group) = source.new {
                hand.extend(&by_group[group]);
                if container.kind == Kind::Init {
                    waiting.extend(&by_group[group]);
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

/// Whether `good` holds for `hand` together with every choice of `count` cards of `pool`.
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
    use crate::wire::{ContainerRequest, Kind, Memory};

    fn containers(parts: &[(Kind, u32)]) -> Vec<ContainerRequest> {
        let container = |(at, (kind, cards)): (usize, &(Kind, u32))| ContainerRequest {
            name: at.to_string(),
            kind: *kind,
            cards: *cards,
            memory: Memory::Mib(1),
            cores: 0,
        };
        parts.iter().enumerate().map(container).collect()
    }

    fn shape(parts: &[(Kind, u32)]) -> Shape {
        Shape::of(&containers(parts))
    }

    #[test]
    fn apps_alone_have_a_group_each() {
        let shape = shape(&[(Kind::App, 2), (Kind::App, 1)]);
        assert_eq!(shape.phases, 1);
        assert!(!shape.has_choice);
        let counts: Vec<_> = shape.groups.iter().map(|group| (group.count, group.apart)).collect();
        assert_eq!(counts, [(2, 0), (1, 0)]);
        assert_eq!(shape.groups[0].holders, [0b01]);
        assert_eq!(shape.groups[1].holders, [0b10]);
    }

    #[test]
    fn an_app_takes_what_the_init_container_had_and_more() {
        let shape = shape(&[(Kind::Init, 1), (Kind::App, 2), (Kind::App, 1)]);
        assert!(!shape.has_choice);
        assert_eq!(shape.groups.len(), 3);
        assert_eq!(shape.groups[0].holders, [0b001, 0b010]);
        assert_eq!(shape.groups[1].apart, 0b1, "two cards of one container differ");
        assert_eq!(shape.groups[2].apart, 0, "nothing is left to reuse");
    }

    #[test]
    fn where_the_kubelet_may_choose_every_choice_counts() {
        let shape = shape(&[(Kind::Init, 2), (Kind::App, 1), (Kind::App, 1)]);
        assert!(shape.has_choice);
        assert_eq!(shape.groups.len(), 1);
        assert_eq!(shape.groups[0].holders, [0b001, 0b110]);
    }

    #[test]
    fn a_sidecar_keeps_its_card_from_later_init_containers() {
        let shape = shape(&[(Kind::Init, 1), (Kind::Sidecar, 1), (Kind::Init, 1), (Kind::App, 1)]);
        assert!(!shape.has_choice);
        assert_eq!(shape.groups.len(), 2);
        assert_eq!(shape.groups[0].holders, [0b0001, 0b0010, 0b0010]);
        assert_eq!(shape.groups[1].holders, [0b0000, 0b0100, 0b1000]);
        assert_eq!(shape.groups[1].apart, 0);
    }

    #[test]
    fn new_cards_differ_from_all_that_may_be_reused() {
        let shape = shape(&[(Kind::Init, 2), (Kind::Sidecar, 1), (Kind::Init, 2), (Kind::App, 2)]);
        assert!(shape.has_choice);
        assert_eq!(shape.groups[1].apart, 0b1);
        assert_eq!(shape.groups[0].holders, [0b0001, 0b0110, 0b1010]);
        assert_eq!(shape.groups[1].holders, [0b0000, 0b0100, 0b1000]);
    }

    #[test]
    fn cards_are_distributed_in_container_order() {
        let parts = [(Kind::Init, 2), (Kind::Sidecar, 1), (Kind::App, 2)];
        let dealt = shape(&parts).deal(&containers(&parts), &[vec!['a', 'b'], vec!['c']]);
        assert_eq!(dealt, [vec!['a', 'b'], vec!['a'], vec!['b', 'c']]);
    }

    #[test]
    fn sets_have_members() {
        assert_eq!(members(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
        assert_eq!(members(1 << 63).collect::<Vec<_>>(), [63]);
        assert_eq!(members(0).count(), 0);
    }
}
