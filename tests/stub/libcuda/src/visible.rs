//! `CUDA_VISIBLE_DEVICES`: which cards are devices, and in which order.

use stub_engine::profile::Card;

/// The cards behind device ordinals 0, 1, …
///
/// An entry is an index, a UUID or the start of one. The list ends at the first entry that names no
/// card, and a card named twice makes the whole list void.
pub fn devices(cards: &[Card], list: Option<&str>) -> Vec<usize> {
    let Some(list) = list else { return (0..cards.len()).collect() };
    let mut devices = Vec::new();
    for card in list.split(',').map_while(|entry| named(cards, entry.trim())) {
        if devices.contains(&card) {
            return Vec::new();
        }
        devices.push(card);
    }
    devices
}

fn named(cards: &[Card], entry: &str) -> Option<usize> {
    if let Ok(index) = entry.parse::<usize>() {
        return (index < cards.len()).then_some(index);
    }
    if !entry.starts_with("GPU-") && !entry.starts_with("MIG-") {
        return None;
    }
    let mut found = cards.iter().filter(|card| card.uuid().starts_with(entry));
    match (found.next(), found.next()) {
        (Some(card), None) => Some(card.index),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stub_engine::profile;

    #[test]
    fn every_spelling_of_a_card_is_understood() {
        let cards = profile::cards("a100,a100,a100-mig-3g").expect("cards");
        let (second, mig) = (cards[1].uuid(), cards[2].uuid());
        let of = |list: &str| devices(&cards, Some(list));
        assert_eq!(devices(&cards, None), [0, 1, 2]);
        assert_eq!(of("1, 0"), [1, 0]);
        assert_eq!(of(&second), [1]);
        assert_eq!(of(&second[..12]), [1]);
        assert_eq!(of(&format!("{mig},0")), [2, 0]);
        assert!(of("").is_empty());
        assert!(of("-1").is_empty());
        assert_eq!(of("1,7,0"), [1], "the list ends at the first wrong entry");
        assert!(of("GPU-").is_empty(), "a prefix of several cards names none");
        assert!(of("0,0").is_empty(), "a card named twice");
        assert!(of("all").is_empty());
    }
}
