//! What the driver takes for a module in a context.

use crate::process::Driver;
use crate::{Answer, memory};
use stub_engine::ledger::Kind;

/// A charge.
pub struct Taken {
    card: usize,
    bytes: u64,
}

impl Taken {
    /// Charges a module whose image and variables have so many bytes.
    pub fn charge(driver: &Driver, card: usize, bytes: u64) -> Answer<Self> {
        let bytes = driver.engine.cards()[card].profile.module_bytes(bytes);
        if bytes > 0 {
            driver.engine.charge(card, Kind::Module, bytes).map_err(memory::refused)?;
        }
        Ok(Self { card, bytes })
    }

    /// Releases it.
    pub fn release(self, driver: &Driver) {
        if self.bytes > 0 {
            driver.engine.release(self.card, Kind::Module, self.bytes);
        }
    }
}
