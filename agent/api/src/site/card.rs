//! Which item of a Site is about a card: as systemd-networkd finds the file of an interface.

use super::interfaces::Interface;
use crate::net::MacAddress;

/// What is known of a card, or of an interface that the box makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Its permanent MAC address.
    pub mac: Option<MacAddress>,
    /// What the kernel calls it.
    pub name: Option<String>,
    /// Its driver.
    pub driver: Option<String>,
}

impl Card {
    /// One that is known by its MAC address or by its name.
    pub fn of(mac: Option<&str>, name: Option<&str>) -> Self {
        Self { mac: mac.and_then(MacAddress::from_any), name: name.map(str::to_owned), driver: None }
    }

    /// The number of the item that is about it, as far as that is known: by its MAC address, else by its name, else by the
    /// first pattern.
    pub fn item_in(&self, items: &[Interface]) -> Option<usize> {
        let rank = |item: &Interface| match (&item.mac_address, item.is_several()) {
            (Some(_), _) => 0,
            (None, false) => 1,
            (None, true) => 2,
        };
        let about = items.iter().enumerate().filter(|(_, item)| self.is_of(item));
        about.min_by_key(|(number, item)| (rank(item), *number)).map(|(number, _)| number)
    }

    /// Whether the item is about it: everything that the item asks for is known, and is so. A MAC address alone is enough.
    fn is_of(&self, item: &Interface) -> bool {
        if let Some(mac) = &item.mac_address {
            return self.mac.is_some() && self.mac == MacAddress::from_any(mac);
        }
        let fits = |pattern: &Option<String>, own: &Option<String>| match (pattern, own) {
            (None, _) => true,
            (Some(pattern), Some(own)) => fits(pattern, own),
            (Some(_), None) => false,
        };
        let says = item.name.is_some() || item.driver.is_some();
        says && fits(&item.name, &self.name) && fits(&item.driver, &self.driver)
    }
}

/// Whether a text stands for several (glob(7)).
pub(super) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Whether a name fits a pattern (glob(7)): `*`, `?` and `[...]`.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut read) = (0, 0);
    // Where the last `*` ends, and how far the name was read then: it takes one letter more each time that the rest does not fit.
    let mut star = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, read));
        } else if read == name.len() && at == pattern.len() {
            return true;
        } else if let Some(next) = name.get(read).and_then(|letter| one(&pattern[at..], *letter)) {
            (at, read) = (at + next, read + 1);
        } else if let Some((behind, taken)) = star.filter(|(_, taken)| *taken < name.len()) {
            (at, read) = (behind, taken + 1);
            star = Some((behind, taken + 1));
        } else {
            return false;
        }
    }
}

/// The length of what stands for one letter, if it stands for this one.
fn one(pattern: &[u8], letter: u8) -> Option<usize> {
    match pattern.first()? {
        b'?' => Some(1),
        b'[' => {
            // A `]` at the beginning is one of the letters.
            let end = 2 + pattern.get(2..)?.iter().position(|byte| *byte == b']')?;
            let set = &pattern[1..end];
            let between = |three: &[u8]| three[1] == b'-' && (three[0]..=three[2]).contains(&letter);
            (set.contains(&letter) || set.windows(3).any(between)).then_some(end + 1)
        }
        own => (*own == letter).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;

    use super::{Card, fits};
    use crate::site::Interface;

    #[test]
    fn names_fit_patterns_as_glob_has_them() {
        for (pattern, name, expected) in [
            ("eno*", "eno1", true),
            ("eno*", "eno", true),
            ("eno*", "ens1", false),
            ("en*1", "eno11", true),
            ("en*1", "eno12", false),
            ("*", "eno1", true),
            ("**0*", "eno1", false),
            ("eno?", "eno1", true),
            ("eno?", "eno", false),
            ("eno[1-3]", "eno2", true),
            ("eno[1-3]", "eno4", false),
            ("eno[124]f0", "eno4f0", true),
            ("eno[]x]", "eno]", true),
            ("eno[1", "eno1", false),
            ("eno1", "eno1", true),
            ("eno1", "eno12", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
        assert!(!fits(&"*a".repeat(30), "aaaaaaaaaaaaaab"), "soon");
    }

    #[test]
    fn the_item_of_a_card_is_the_one_that_says_most_of_it() {
        let text = |text: &str| Some(text.to_owned());
        let by = |mac: Option<&str>, name: Option<&str>, driver: Option<&str>| Interface {
            mac_address: mac.map(str::to_owned),
            name: name.map(str::to_owned),
            driver: driver.map(str::to_owned),
            ..Interface::default()
        };
        let items = [
            by(None, Some("eno*"), Some("igb")),
            by(None, Some("eno[0-9]"), None),
            by(None, Some("eno2"), None),
            by(Some("52:54:00:12:34:5A"), None, None),
            by(None, None, Some("ixgbe")),
            Interface::default(),
        ];
        let card = |name: &str| Card::of(None, Some(name));
        for (card, expected) in [
            (card("eno1"), Some(1)),
            (card("eno2"), Some(2)),
            (card("ens1"), None),
            (Card { driver: text("igb"), ..card("eno1") }, Some(0)),
            (Card { driver: text("ixgbe"), ..card("ens1") }, Some(4)),
            (Card::of(Some("52:54:00:12:34:5a"), Some("eno2")), Some(3)),
            (Card::of(Some("52:54:00:12:34:5b"), None), None),
            (Card::default(), None),
        ] {
            assert_eq!(card.item_in(&items), expected, "{card:?}");
        }
    }

    proptest! {
        #[test]
        fn a_name_fits_itself_and_a_star(name in "[a-z0-9._-]{1,15}") {
            assert!(fits(&name, &name) && fits("*", &name) && fits(&format!("*{name}*"), &name));
        }

        #[test]
        fn no_pattern_makes_it_panic(pattern in "[a-b*?\\[\\]-]{0,64}", name in "[a-b]{0,15}") {
            let _ = fits(&pattern, &name);
        }
    }
}
