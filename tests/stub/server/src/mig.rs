//! MIG on this node: the cards' states, which client uses which MIG device, and the capability files.
//!
//! In the ledger and in the machine a MIG device is a card behind the real ones
//! ([`Partitions::index`]). A client that uses one speaks of it by the number of the card, so the
//! libraries need to know nothing of this.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use stub_engine::ledger::{ClientId, Ledger};
use stub_engine::mig::{self, Call, DEVICES_MAX, State};
use stub_engine::profile::Card;
use stub_engine::report::{Device, Opened};

/// The cards with their states, and what their clients use.
pub struct Partitions {
    cards: Vec<Card>,
    /// By client; what an ended client has used stays, for the report.
    opened: Vec<Option<Opened>>,
    /// Where the capability files are.
    root: Option<PathBuf>,
}

impl Partitions {
    /// Cards without MIG mode. Their capability files are written below `root`.
    pub fn new(cards: &[Card], root: Option<PathBuf>) -> Result<Self, String> {
        let partitions = Self { cards: cards.to_vec(), opened: Vec::new(), root };
        partitions.publish()?;
        Ok(partitions)
    }

    /// The cards with their states.
    pub fn cards(&self) -> &[Card] {
        &self.cards
    }

    /// The state of a card.
    pub fn state(&mut self, card: usize) -> &mut State {
        &mut self.cards[card].mig
    }

    /// Adds a client.
    pub fn attach(&mut self) {
        self.opened.push(None);
    }

    /// What a client means by the number of a card: the card, or the MIG device that it uses.
    pub fn index_of(&self, client: ClientId, card: usize) -> usize {
        let opened = self.opened[client.0].as_ref().filter(|opened| opened.card == card);
        opened.map_or(card, |opened| opened.index)
    }

    /// The index of a MIG device in the ledger and in the machine.
    fn index(&self, card: usize, device: usize) -> usize {
        self.cards.len() + card * DEVICES_MAX + device
    }

    /// The indices of all MIG devices that a card has or had.
    pub fn indices(&self, card: usize, ledger: &Ledger) -> std::ops::Range<usize> {
        let first = self.index(card, 0).min(ledger.cards.len());
        first..(first + DEVICES_MAX).min(ledger.cards.len())
    }

    /// Whether a client that lives, or whose memory is not free yet, uses a MIG device of a card;
    /// `None`: any, or the card itself.
    pub fn is_used(&self, ledger: &Ledger, card: usize, device: Option<usize>) -> bool {
        let wanted = device.map(|device| self.index(card, device));
        self.opened.iter().enumerate().any(|(client, opened)| {
            let id = ClientId(client);
            let has_opened = opened.as_ref().is_some_and(|opened| {
                opened.card == card && wanted.is_none_or(|index| index == opened.index)
            });
            let has_memory = || wanted.is_none() && ledger.has_memory(id, card);
            !ledger.is_freed(id) && (has_opened || has_memory())
        })
    }

    /// Lets a client use a MIG device from now on, if it exists; returns its index.
    pub fn open(&mut self, client: ClientId, card: usize, uuid_bytes: [u8; 16]) -> Option<usize> {
        let found = self
            .devices()
            .into_iter()
            .find(|device| device.card.index == card && device.card.uuid_bytes == uuid_bytes)?;
        let (index, uuid) = (found.index, found.card.uuid());
        self.opened[client.0] = Some(Opened { card, index, uuid });
        Some(index)
    }

    /// By client, for the report.
    pub fn opened(&self) -> &[Option<Opened>] {
        &self.opened
    }

    /// All MIG devices.
    pub fn devices(&self) -> Vec<Device> {
        let of = |card: &Card| -> Vec<Device> {
            let devices = card.mig.devices().filter_map(|(instance, compute)| {
                let index = self.index(card.index, compute.device);
                let (instance_id, compute_id) = (instance.id, compute.id);
                let card = card.mig_device(instance, compute)?;
                Some(Device { index, card, instance: instance_id, compute: compute_id })
            });
            devices.collect()
        };
        self.cards.iter().flat_map(of).collect()
    }

    /// Does a call that changes the state of a card; the error is NVML's.
    pub fn change(&mut self, card: usize, call: &Call, ledger: &mut Ledger) -> Result<u32, u32> {
        let is_used: Vec<bool> = (0..DEVICES_MAX)
            .map(|device| self.is_used(ledger, card, Some(device)))
            .chain([self.is_used(ledger, card, None)])
            .collect();
        let is_used = |device: Option<usize>| is_used[device.unwrap_or(DEVICES_MAX)];
        let whole = self.cards[card].clone();
        let id = self.state(card).change(&whole, call, is_used)?;
        if let Call::CreateCompute { instance, .. } = *call {
            let created = self.devices().into_iter().find(|device| {
                (device.card.index, device.instance, device.compute) == (card, instance, id)
            });
            if let Some(Device { index, card: device, .. }) = created {
                ledger.put_device(index, &device.profile, (card, instance));
            }
        }
        self.publish_or_say();
        Ok(id)
    }

    /// Resets a card, unless a program uses it.
    pub fn reset(&mut self, card: usize, ledger: &Ledger) -> Result<(), String> {
        if self.is_used(ledger, card, None) {
            return Err(format!("reset: card {card} is in use; end its programs first"));
        }
        let Card { mig, profile, .. } = &mut self.cards[card];
        mig.reset(profile);
        self.publish_or_say();
        Ok(())
    }

    fn publish_or_say(&self) {
        if let Err(error) = self.publish() {
            eprintln!("stub-gpu: {error}");
        }
    }

    /// Writes the capability files: the table of numbers, and a node for each capability that
    /// exists.
    fn publish(&self) -> Result<(), String> {
        let Some(root) = &self.root else { return Ok(()) };
        let of = |card: &Card| -> Vec<u32> {
            let instances = card.mig.instances.iter().flat_map(|instance| {
                let number = |compute| mig::capabilities(card.index, instance.id, compute);
                let computes = instance.computes.iter().map(move |compute| number(compute.id)[1]);
                computes.chain([number(0)[0]]).collect::<Vec<_>>()
            });
            instances.collect()
        };
        let mut wanted: BTreeSet<u32> = self.cards.iter().flat_map(of).collect();
        // The configuration and monitors.
        wanted.extend([1, 2]);
        write(root, &mig::minors(self.cards.len()), &wanted)
            .map_err(|error| format!("--root {}: {error}", root.display()))
    }
}

fn write(root: &Path, minors: &str, wanted: &BTreeSet<u32>) -> io::Result<()> {
    let table = root.join("proc/driver/nvidia-caps");
    fs::create_dir_all(&table)?;
    fs::write(table.join("mig-minors"), minors)?;
    let nodes = root.join("dev/nvidia-caps");
    fs::create_dir_all(&nodes)?;
    let name = |number: &u32| format!("nvidia-cap{number}");
    let names: BTreeSet<String> = wanted.iter().map(name).collect();
    for entry in fs::read_dir(&nodes)? {
        let entry = entry?;
        if !names.contains(&*entry.file_name().to_string_lossy()) {
            fs::remove_file(entry.path())?;
        }
    }
    for number in wanted {
        let node = nodes.join(name(number));
        if !node.exists() {
            // Only root configures.
            make_node(&node, if *number == 1 { 0o400 } else { 0o444 })?;
        }
    }
    Ok(())
}

/// Makes a device node (of `/dev/null`, because the stub has no driver in the kernel), or a plain
/// file where the process may make none.
fn make_node(path: &Path, mode: u32) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: the name is a string that ends with NUL.
    let result = unsafe { libc::mknod(name.as_ptr(), libc::S_IFCHR | mode, libc::makedev(1, 3)) };
    if result != 0 {
        fs::write(path, "")?;
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}
