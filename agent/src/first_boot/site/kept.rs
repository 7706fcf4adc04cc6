//! The Site that the box uses, kept in DATA: the last good one holds, and whoever has access to it says what may take its
//! place.
//!
//! ```text
//! nobody has access                 whatever is found first counts
//! access by the own SITE partition, that partition counts, and what REST was sent
//!   or by the image
//! access by a claim, REST, others   what REST was sent
//! always                            what is signed with a key of the Site that is used
//! ```

use std::path::Path;

use agent_api::site::Site;
use minisign_verify::{PublicKey, Signature};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::host::files;

/// Where it is kept.
pub(super) const PLACE: &str = "/var/lib/foothold/site-in-use.json";
/// A token that was claimed with the code on the console.
pub(super) const CLAIMED: &str = "/var/lib/foothold/access/token.sha256";
/// Former Sites that are remembered.
const MOST_FORMER: usize = 256;

/// Came where a Site came, as far as it matters for what may replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Came {
    /// The partition `SITE` of the medium that the box runs from.
    OwnMedium,
    /// REST.
    Rest,
    /// The image.
    Image,
    /// Another volume, the kernel command line.
    Elsewhere,
}

/// Who decides about the Site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Nobody has access yet.
    Nobody,
    /// Who edits the box's own medium.
    OwnMedium,
    /// Who has the token.
    Token,
}

/// The Site in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kept {
    pub text: String,
    pub from: Came,
    /// Digests of Sites that were in use before.
    #[serde(default)]
    former: Vec<String>,
}

impl Kept {
    /// What is kept. What cannot be read is an empty Site of somebody who has access: damage lets nobody in.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let read = match fs_err::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            read => read.and_then(|bytes| Ok(serde_json::from_slice(&bytes)?)),
        };
        Some(read.unwrap_or_else(|error| {
            log::error!("`{}` is passed over: {error}", path.display());
            Self { text: String::new(), from: Came::Rest, former: Vec::new() }
        }))
    }

    /// Keeps this text in the place of what was kept.
    pub(super) fn keep(before: Option<&Self>, path: &Path, text: &str, from: Came) -> std::io::Result<()> {
        let mut former = before.map(|before| before.former.clone()).unwrap_or_default();
        if let Some(before) = before.filter(|before| before.text != text) {
            former.push(digest(&before.text));
            former.drain(..former.len().saturating_sub(MOST_FORMER));
        }
        former.retain(|one| *one != digest(text));
        let kept = Self { text: text.to_owned(), from, former };
        files::write_durably(path, &serde_json::to_vec(&kept)?, files::SECRET)?;
        Ok(())
    }

    /// Who decides, by the Site in use and whether somebody has claimed the box.
    pub(super) fn owner(&self, site: &Site, claimed: bool) -> Owner {
        let access = &site.access;
        let has_access = access.token_sha256.is_some() || !access.ssh_authorized_keys.is_empty();
        match self.from {
            _ if claimed => Owner::Token,
            _ if !has_access => Owner::Nobody,
            Came::OwnMedium | Came::Image => Owner::OwnMedium,
            Came::Rest | Came::Elsewhere => Owner::Token,
        }
    }

    /// Whether somebody signed the text with one of the keys of the Site in use. What was in use before and was replaced is
    /// not taken again.
    pub(super) fn is_signed(&self, site: &Site, text: &str, signature: Option<&str>) -> Result<(), String> {
        if site.access.site_keys.is_empty() {
            return Err("the Site in use names no `access.siteKeys` that could sign another".to_owned());
        }
        let signature = signature.ok_or("there is no `site.yaml.minisig` beside it")?;
        let signature = Signature::decode(signature).map_err(|error| format!("its signature is none: {error}"))?;
        let signs = |key: &String| {
            PublicKey::from_base64(key).is_ok_and(|key| key.verify(text.as_bytes(), &signature, false).is_ok())
        };
        if !site.access.site_keys.iter().any(signs) {
            return Err("no key of `access.siteKeys` has signed it".to_owned());
        }
        if self.former.contains(&digest(text)) {
            return Err("it was in use before, and another one took its place".to_owned());
        }
        Ok(())
    }
}

fn digest(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use agent_api::site::{Access, Site};

    use super::{Came, Kept, Owner, digest};

    fn kept(from: Came) -> Kept {
        Kept { text: "one".to_owned(), from, former: Vec::new() }
    }

    #[test]
    fn who_has_access_decides() {
        let open = Site::default();
        let access = Access { token_sha256: Some("ab".repeat(32)), ..Access::default() };
        let closed = Site { access, ..Site::default() };
        let keys = Access { ssh_authorized_keys: vec!["ssh-ed25519 AAAA".to_owned()], ..Access::default() };
        let by_ssh = Site { access: keys, ..Site::default() };
        for (from, site, claimed, owner) in [
            (Came::OwnMedium, &open, false, Owner::Nobody),
            (Came::Elsewhere, &open, false, Owner::Nobody),
            (Came::OwnMedium, &open, true, Owner::Token),
            (Came::OwnMedium, &closed, false, Owner::OwnMedium),
            (Came::OwnMedium, &by_ssh, false, Owner::OwnMedium),
            (Came::Image, &closed, false, Owner::OwnMedium),
            (Came::OwnMedium, &closed, true, Owner::Token),
            (Came::Rest, &closed, false, Owner::Token),
            (Came::Elsewhere, &by_ssh, false, Owner::Token),
        ] {
            assert_eq!(kept(from).owner(site, claimed), owner, "{from:?} {claimed}");
        }
    }

    #[test]
    fn what_took_a_place_is_remembered() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("kept.json");
        assert_eq!(Kept::read(&path), None);
        let mut before = None;
        for text in ["one", "two", "two", "three", "one"] {
            Kept::keep(before.as_ref(), &path, text, Came::Rest).expect("kept");
            before = Kept::read(&path);
        }
        let now = before.expect("kept");
        assert_eq!((now.text.as_str(), now.former), ("one", vec![digest("two"), digest("three")]));
        fs_err::write(&path, "{").expect("written");
        assert_eq!(Kept::read(&path).map(|kept| kept.from), Some(Came::Rest), "damage lets nobody in");
    }
}
