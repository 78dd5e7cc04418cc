//! The stub's environment variables. No other module reads them.

use crate::mig;
use crate::profile::Card;
use std::path::PathBuf;

/// The settings from the environment.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `STUB_GPU_SOCKET`: the server's socket; without it the engine is in this process.
    pub socket: Option<PathBuf>,
    /// `STUB_GPU_PROFILE`: the in-process engine's cards, such as `t4,a100@12020`: profiles by name
    /// or path, `@` and a CUDA version for a driver of that age. Default: one `a100`.
    pub cards: String,
    /// `STUB_GPU_GROUP`: the group that this process is summed in. Default: the empty name.
    pub group: String,
    /// `STUB_GPU_KERNELS`: `name=us,*=us`, durations for the in-process engine. Default: 0.
    pub kernels: String,
    /// `STUB_GPU_COUNT=1`: count calls and kernels in the in-process engine too.
    pub count: bool,
    /// `STUB_GPU_CLOCK=virtual`: time moves only when this process waits for it.
    pub has_virtual_clock: bool,
    /// `STUB_GPU_DEVICES`: a folder with the process's device nodes; without it all cards are there.
    pub devices: Option<PathBuf>,
    /// `CUDA_VISIBLE_DEVICES`, as the real driver reads it.
    pub visible_devices: Option<String>,
    /// `CUDA_MPS_PIPE_DIRECTORY`: where an MPS daemon would be found.
    pub mps_pipes: PathBuf,
    /// `CUDA_LAUNCH_BLOCKING=1`: a launch returns when its kernel has ended.
    pub is_launch_blocking: bool,
}

impl Settings {
    /// Reads the environment.
    pub fn from_environment() -> Self {
        let read = |name| std::env::var(name).ok();
        Self {
            socket: std::env::var_os("STUB_GPU_SOCKET").map(PathBuf::from),
            cards: read("STUB_GPU_PROFILE").unwrap_or_else(|| "a100".into()),
            group: read("STUB_GPU_GROUP").unwrap_or_default(),
            kernels: read("STUB_GPU_KERNELS").unwrap_or_default(),
            count: read("STUB_GPU_COUNT").is_some_and(|value| value == "1"),
            has_virtual_clock: read("STUB_GPU_CLOCK").is_some_and(|value| value == "virtual"),
            devices: std::env::var_os("STUB_GPU_DEVICES").map(PathBuf::from),
            visible_devices: read("CUDA_VISIBLE_DEVICES"),
            mps_pipes: read("CUDA_MPS_PIPE_DIRECTORY").unwrap_or("/tmp/nvidia-mps".into()).into(),
            is_launch_blocking: read("CUDA_LAUNCH_BLOCKING").is_some_and(|value| value == "1"),
        }
    }

    /// The cards whose device node the process has, as in a container that has some of them.
    pub fn present<'a>(&self, cards: &'a [Card]) -> Vec<&'a Card> {
        let has_node = |card: &&Card| {
            let node = format!("nvidia{}", card.index);
            self.devices.as_ref().is_none_or(|folder| folder.join(node).exists())
        };
        cards.iter().filter(has_node).collect()
    }

    /// What a CUDA program has of these cards: themselves, or the MIG devices of a card in MIG mode
    /// of which it can open both capabilities.
    pub fn usable(&self, cards: &[&Card]) -> Vec<Card> {
        let of = |card: &Card| -> Vec<Card> {
            if !card.mig.is_on {
                return vec![card.clone()];
            }
            let open = card
                .mig
                .devices()
                .filter(|(instance, compute)| self.can_use(card.index, instance.id, compute.id));
            open.filter_map(|(instance, compute)| card.mig_device(instance, compute)).collect()
        };
        cards.iter().flat_map(|card| of(card)).collect()
    }

    /// Whether NVML shows this process a MIG device: one that it can use, or every one if it can
    /// open the monitors' capability.
    pub fn can_see(&self, card: usize, instance: u32, compute: u32) -> bool {
        self.can_open(mig::MONITOR) || self.can_use(card, instance, compute)
    }

    fn can_use(&self, card: usize, instance: u32, compute: u32) -> bool {
        let nodes = mig::capabilities(card, instance, compute);
        nodes.iter().all(|node| self.can_open(*node))
    }

    fn can_open(&self, capability: u32) -> bool {
        let node = format!("nvidia-caps/nvidia-cap{capability}");
        let open = |folder: &PathBuf| std::fs::File::open(folder.join(node)).is_ok();
        self.devices.as_ref().is_none_or(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile;

    #[test]
    fn a_card_is_present_if_its_device_node_is() {
        let cards = profile::cards("t4,a100,h100").expect("cards");
        let folder = std::env::temp_dir().join(format!("stub-devices-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("folder");
        for name in ["nvidia1", "nvidia7", "nvidia-uvm", "nvidiactl"] {
            std::fs::write(folder.join(name), "").expect("node");
        }
        let mut settings = Settings { devices: None, ..Settings::from_environment() };
        assert_eq!(settings.present(&cards).len(), 3, "without a folder");
        settings.devices = Some(folder.clone());
        assert_eq!(settings.present(&cards), [&cards[1]]);
        std::fs::remove_dir_all(&folder).expect("removed");
        assert!(settings.present(&cards).is_empty(), "no folder, no card");
    }
}
