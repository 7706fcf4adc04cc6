//! SHA-256 and MD5 of bytes that come in pieces, with a state that survives a power cut.
//!
//! The state of both is a few hundred bytes. It is kept with the offset it belongs to, so that the digest of
//! 20 GiB whose upload was cut needs no second reading.

use agent_api::release::Digest;
use md5::Md5;
use md5::digest::common::hazmat::SerializableState;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Digests of the bytes so far.
#[derive(Clone, Default)]
pub(super) struct Hashes {
    sha256: Sha256,
    md5: Md5,
}

/// [`Hashes`] at rest, hex.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    sha256: String,
    md5: String,
}

impl Hashes {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        self.md5.update(bytes);
    }

    pub(super) fn save(&self) -> Saved {
        Saved { sha256: hex::encode(self.sha256.serialize()), md5: hex::encode(self.md5.serialize()) }
    }

    /// Restores a kept state; `None` if another version of this code wrote it.
    pub(super) fn restore(saved: &Saved) -> Option<Self> {
        if *saved == Saved::default() {
            return Some(Self::default());
        }
        let sha256 = hex::decode(&saved.sha256).ok()?;
        let md5 = hex::decode(&saved.md5).ok()?;
        Some(Self {
            sha256: Sha256::deserialize(&sha256.as_slice().try_into().ok()?).ok()?,
            md5: Md5::deserialize(&md5.as_slice().try_into().ok()?).ok()?,
        })
    }

    /// SHA-256, and MD5 in hex.
    pub(super) fn finish(self) -> (Digest, String) {
        (Digest::from_sha256(self.sha256.finalize().into()), hex::encode(self.md5.finalize()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, proptest};
    use sha2::Digest as _;

    use super::{Hashes, Saved};

    proptest! {
        #[test]
        fn a_saved_state_goes_on_where_it_stopped(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8)) {
            let mut saved = Saved::default();
            for piece in &pieces {
                let mut hashes = Hashes::restore(&saved).expect("a state");
                hashes.update(piece);
                saved = serde_json::from_str(&serde_json::to_string(&hashes.save()).expect("JSON")).expect("a state");
            }
            let (sha256, md5) = Hashes::restore(&saved).map(Hashes::finish).expect("digests");
            let whole = pieces.concat();
            assert_eq!(sha256.hex(), hex::encode(sha2::Sha256::digest(&whole)));
            assert_eq!(md5, hex::encode(md5::Md5::digest(&whole)));
        }
    }

    #[test]
    fn what_is_no_state_is_none() {
        assert!(Hashes::restore(&Saved { sha256: "00".to_owned(), md5: String::new() }).is_none());
    }
}
