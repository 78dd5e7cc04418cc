//! The rules: how much of a card a request takes, whether the card has room, and why not.

pub mod card;
pub mod card_reason;
pub mod class;
pub mod demand;
pub mod fit;
pub mod fullness;
pub mod mig;
pub mod node_reason;
pub mod quota;
pub mod shape;
pub mod view;
