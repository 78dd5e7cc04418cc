//! The limits of a process: a stack of layers, each of which must admit every charge.

use std::ops::RangeInclusive;
use std::sync::atomic::AtomicU32;

use driver_sys::cuda::CUdevice;
use hami_account::descriptor::Mark;
use hami_account::{Living, Member, Requester};
use hami_limits::{NO_LIMIT, Row, VariableShare, Variables, same_card};
use vgpu_driver::report::Once;

use crate::layer::Layer;
use crate::seat::Seat;

/// The most slices inside one another. Each layer is charged for each allocation.
pub(crate) const MAX_LAYERS: usize = 8;

// Row i of the page is row i of the account.
const _: () = assert!(hami_limits::page::MAX_ROWS == hami_account::CARDS);

/// Which card the `i` of `CUDA_DEVICE_MEMORY_LIMIT_<i>` names.
pub(crate) enum Index {
    /// The i-th row of the innermost limits page.
    OfPage,
    /// Without a page: the i-th card of the machine.
    OfMachine,
}

/// A card as the slice knows it.
#[derive(Clone, Copy, Debug)]
pub struct Card {
    /// The driver's number for it in this process; -1 if it was found through NVML.
    pub device: CUdevice,
    /// Its row in each layer; `None` if the layer has none, so that nothing may be used.
    rows: [Option<u8>; MAX_LAYERS],
    /// The memory limit that the environment sets for it, in bytes.
    memory_limit: u64,
    /// The share that the environment sets for it.
    share: Option<VariableShare>,
    /// What the driver rounds large allocations up to, in bytes; 0 if they are exact.
    granule: u64,
}

impl Card {
    /// The bytes that the driver takes beyond a request of `bytes`.
    #[inline]
    pub fn rounding(&self, bytes: u64) -> u64 {
        // Up to half a granule, allocations share granules.
        if bytes <= self.granule / 2 {
            return 0;
        }
        bytes.checked_next_multiple_of(self.granule).map_or(0, |whole| whole - bytes)
    }

    pub(crate) fn is_granule_known(&self) -> bool {
        self.granule != 0
    }
}

/// The layers of limits that hold, outermost first; there is at least one.
pub struct Limited {
    layers: Vec<Layer>,
    /// In a box, because a thread whose call is the process's first may have a small stack.
    variables: Box<Variables>,
    index: Index,
    /// The cards that numbers count, by UUID; `None` if those of the machine are counted.
    chosen: Option<Vec<String>>,
}

impl Limited {
    pub(crate) fn new(
        layers: Vec<Layer>,
        variables: Box<Variables>,
        index: Index,
        chosen: Option<Vec<String>>,
    ) -> Self {
        let mut limited = Self { layers, variables, index, chosen: None };
        limited.chosen =
            chosen.map(|cards| cards.into_iter().filter(|uuid| limited.has(uuid)).collect());
        limited
    }

    /// The cards that numbers count, by UUID; `None` if those of the machine are counted.
    pub(crate) fn chosen(&self) -> Option<&[String]> {
        self.chosen.as_deref()
    }

    /// The card with this UUID. `index` is its position among all cards of the machine, if that is
    /// known.
    pub fn card(&self, device: CUdevice, uuid: &str, index: Option<usize>) -> Card {
        let mut rows = [None; MAX_LAYERS];
        for (row, layer) in rows.iter_mut().zip(&self.layers) {
            *row = layer.row_of(uuid);
        }
        let index = match self.index {
            Index::OfPage => self.innermost(&rows).map(|(_, row)| row),
            Index::OfMachine => index,
        };
        let memory_limit = self.variable_memory(index).unwrap_or(NO_LIMIT);
        let share = self.variable_share(index);
        let on_rows = self.layers.iter().zip(rows);
        let granules = on_rows.map(|(layer, row)| row.map_or(0, |row| layer.granule(row.into())));
        let granule = granules.max().unwrap_or(0);
        Card { device, rows, memory_limit, share, granule }
    }

    /// The memory limit that variables set for the i-th card.
    fn variable_memory(&self, index: Option<usize>) -> Option<u64> {
        match self.row(index) {
            Some(row) => self.variables.memory_beside(index, row),
            None => self.variables.memory(index),
        }
    }

    /// The share that variables set for the i-th card.
    fn variable_share(&self, index: Option<usize>) -> Option<VariableShare> {
        match self.row(index) {
            Some(row) => self.variables.share_beside(index, row),
            None => self.variables.share(index),
        }
    }

    /// The i-th row of the innermost page.
    fn row(&self, index: Option<usize>) -> Option<&Row> {
        let Index::OfPage = self.index else { return None };
        self.layers.last()?.rows().get(index?)
    }

    /// Whether a variable sets a share of any card.
    fn variables_set_a_share(&self) -> bool {
        match self.index {
            Index::OfMachine => self.variables.share(None).is_some(),
            Index::OfPage => {
                let rows = self.layers.last().map_or(0, |layer| layer.rows().len());
                (0..rows).any(|row| self.variable_share(Some(row)).is_some())
            }
        }
    }

    /// This process's seats at a card, outermost first, in the layers that have a row for it.
    pub fn seats(&'static self, card: &Card) -> Vec<Seat> {
        let innermost = self.layers.len() - 1;
        let layers = self.layers.iter().zip(card.rows).enumerate();
        layers
            .filter_map(|(index, (layer, row))| {
                let share = card.share.filter(|_| index == innermost);
                Some(Seat::new(layer, usize::from(row?), share))
            })
            .collect()
    }

    /// The words in the limits page and in the grants page that are not 0 while launches need
    /// admission; an inner `None` means a word that is always 0. `None` if two words are not
    /// enough: slices lie inside one another, or a variable sets a share.
    pub fn regulated_words(&self) -> Option<[Option<&AtomicU32>; 2]> {
        match self.layers.as_slice() {
            _ if self.variables_set_a_share() => None,
            // Without a page there is no share, and no way to set one.
            [layer] => layer.regulated_words().or(Some([None, None])),
            _ => None,
        }
    }

    /// Makes this process a member of every layer, so that it is listed before it holds memory. A
    /// full account is no error yet.
    #[cold]
    pub fn join(&self) {
        self.layers.iter().for_each(Layer::join);
    }

    /// Whether every card of the machine is part of every layer.
    pub fn has_every_card(&self) -> bool {
        self.layers.iter().all(Layer::has_every_card)
    }

    /// Whether every layer has a row for the card with this UUID.
    fn has(&self, uuid: &str) -> bool {
        self.layers.iter().all(|layer| layer.row_of(uuid).is_some())
    }

    /// Where NVML counts the card with this UUID, among the cards of the slice; cards with the same
    /// place are in NVML's order. `None` if a layer has no row for it.
    pub fn place(&self, uuid: &str) -> Option<usize> {
        match &self.chosen {
            Some(chosen) => chosen.iter().position(|each| same_card(each, uuid)),
            None => self.has(uuid).then_some(0),
        }
    }

    /// The living processes of the innermost slice, and the memory that each holds on a card.
    pub fn living(&self, card: &Card) -> impl Iterator<Item = Living> {
        let row = self.innermost(&card.rows).map(|(_, row)| row);
        self.layers.last().into_iter().flat_map(move |layer| layer.living(row))
    }

    /// Charges every layer or none.
    ///
    /// A charge that one layer refuses must not appear in another one even for a moment, because it
    /// could get in the way of a neighbour. So the outer layers are checked before anything is
    /// charged, and then charged from the inside out.
    #[inline]
    pub fn charge(&self, card: &Card, bytes: u64, requester: Requester) -> bool {
        if !self.covers(card) {
            static OUTSIDE: Once = Once::new();
            OUTSIDE.line(format_args!(
                "device {} is a card outside this slice and has no memory here; \
                 name the slice's cards by UUID in CUDA_VISIBLE_DEVICES (see `hami devices`)",
                card.device
            ));
            return false;
        }
        let innermost = self.layers.len() - 1;
        let admitted = (0..innermost).all(|index| {
            self.at(card, index)
                .is_some_and(|(layer, row)| layer.admits(row, bytes, layer.limit(row), requester))
        });
        if !admitted {
            return false;
        }
        for index in (0..=innermost).rev() {
            let charged = self.at(card, index).is_some_and(|(layer, row)| {
                layer.charge(row, bytes, self.limit_at(card, index, row), requester)
            });
            if !charged {
                self.uncharge_layers(card, bytes, index + 1..=innermost);
                return false;
            }
        }
        true
    }

    /// Charges every layer, whatever its limit is. For memory that the driver has taken already.
    /// Returns false if an account cannot hold the number.
    #[cold]
    pub(crate) fn force_charge(&self, card: &Card, bytes: u64) -> bool {
        let layers: Vec<(&Layer, usize)> = self.rows_of(card).collect();
        for (index, (layer, row)) in layers.iter().enumerate() {
            if !layer.charge(*row, bytes, NO_LIMIT, Requester::Library) {
                for (charged, row) in layers.iter().take(index) {
                    charged.uncharge(*row, bytes);
                }
                return false;
            }
        }
        true
    }

    /// Whether every layer has a row for the card.
    fn covers(&self, card: &Card) -> bool {
        self.rows(card).all(|(_, row)| row.is_some())
    }

    /// Undoes [`Self::charge`].
    pub fn uncharge(&self, card: &Card, bytes: u64) {
        self.uncharge_layers(card, bytes, 0..=self.layers.len() - 1);
    }

    fn uncharge_layers(&self, card: &Card, bytes: u64, layers: RangeInclusive<usize>) {
        for (layer, row) in layers.filter_map(|index| self.at(card, index)) {
            layer.uncharge(row, bytes);
        }
    }

    /// Moves the charge for exported memory from this process to the slice, in every layer. Returns
    /// whether every layer had room.
    pub(crate) fn share(&self, card: &Card, key: u64, bytes: u64, mark: Option<&Mark>) -> bool {
        self.rows_of(card).all(|(layer, row)| {
            layer.member().is_some_and(|member| member.share(key, row, bytes, mark))
        })
    }

    /// Notes in every layer that this process is about to import memory. If a layer does not know
    /// it, nothing is noted.
    pub(crate) fn import(&self, key: u64) -> bool {
        let import = |layer: &Layer| layer.member().is_some_and(|member| member.import(key));
        let is_known = self.layers.iter().all(import);
        if !is_known {
            self.close_shared(None, key, 0);
        }
        is_known
    }

    /// This process no longer has shared memory. A layer that does not know it is uncharged.
    pub(crate) fn close_shared(&self, card: Option<&Card>, key: u64, bytes: u64) {
        for (index, layer) in self.layers.iter().enumerate() {
            let is_known = layer.member().is_some_and(|member| member.close_shared(key));
            if let Some((_, row)) = card.filter(|_| !is_known).and_then(|card| self.at(card, index))
            {
                layer.uncharge(row, bytes);
            }
        }
    }

    /// Bytes that the driver takes for a context on the card; 0 if no layer knows, and if a layer
    /// does not have the card. Layers that disagree were created before and after an update.
    pub fn context_memory(&self, card: &Card) -> u64 {
        if !self.covers(card) {
            return 0;
        }
        self.rows_of(card).map(|(layer, row)| layer.context_memory(row)).max().unwrap_or(0)
    }

    /// Notes in every layer that the driver has taken this part of the charged bytes for itself.
    pub fn add_driver_memory(&self, card: &Card, bytes: u64) {
        self.members(card).for_each(|(member, row)| member.add_driver_memory(row, bytes));
    }

    /// Undoes [`Self::add_driver_memory`]; call it before the bytes are uncharged.
    pub fn remove_driver_memory(&self, card: &Card, bytes: u64) {
        self.members(card).for_each(|(member, row)| member.remove_driver_memory(row, bytes));
    }

    /// This process's memberships in the layers, with the rows of a card.
    fn members<'a>(&'a self, card: &'a Card) -> impl Iterator<Item = (&'a Member<'static>, usize)> {
        self.rows_of(card).filter_map(|(layer, row)| Some((layer.member()?, row)))
    }

    /// The limit in force: the least over all layers; 0 if a layer does not have the card.
    pub fn limit(&self, card: &Card) -> u64 {
        self.least(card, |index, _, row| self.limit_at(card, index, row))
    }

    /// The bytes that may still be charged: the least over all layers.
    pub fn left(&self, card: &Card) -> u64 {
        self.least(card, |index, layer, row| {
            layer.reap();
            self.limit_at(card, index, row).saturating_sub(layer.in_use(row))
        })
    }

    /// The limit of one layer. The environment limits the innermost slice only, because other
    /// processes live in the slices around it.
    #[inline]
    fn limit_at(&self, card: &Card, index: usize, row: usize) -> u64 {
        let limit = self.layers.get(index).map_or(0, |layer| layer.limit(row));
        if index + 1 == self.layers.len() { limit.min(card.memory_limit) } else { limit }
    }

    /// The bytes that the processes of the innermost slice hold.
    pub fn used(&self, card: &Card) -> u64 {
        self.innermost(&card.rows).map_or(0, |(layer, row)| layer.in_use(row))
    }

    /// The layers that have a row for the card.
    fn rows_of<'a>(&'a self, card: &'a Card) -> impl Iterator<Item = (&'a Layer, usize)> {
        self.rows(card).filter_map(|(layer, row)| Some((layer, row?)))
    }

    fn rows<'a>(&'a self, card: &'a Card) -> impl Iterator<Item = (&'a Layer, Option<usize>)> {
        self.layers.iter().zip(card.rows.iter().map(|row| row.map(usize::from)))
    }

    fn at(&self, card: &Card, index: usize) -> Option<(&Layer, usize)> {
        let row = *card.rows.get(index)?;
        Some((self.layers.get(index)?, usize::from(row?)))
    }

    fn innermost(&self, rows: &[Option<u8>; MAX_LAYERS]) -> Option<(&Layer, usize)> {
        let layer = self.layers.last()?;
        let row = *rows.get(self.layers.len() - 1)?;
        Some((layer, usize::from(row?)))
    }

    fn least(&self, card: &Card, of: impl Fn(usize, &Layer, usize) -> u64) -> u64 {
        self.rows(card)
            .enumerate()
            .map(|(index, (layer, row))| row.map_or(0, |row| of(index, layer, row)))
            .min()
            .unwrap_or(NO_LIMIT)
    }
}
