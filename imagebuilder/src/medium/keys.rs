//! Which key a release is checked with, and how far that trust goes.

use std::path::{Path, PathBuf};

use minisign::{PublicKeyBox, SignatureBox};
use serde_json::{Value, json};

use super::{Found, Medium};
use crate::release::sign;

/// A public key and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Text of the public key file.
    pub text: String,
    /// Where it came from.
    pub trust: Trust,
}

/// Where a key came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The user named it.
    Given(PathBuf),
    /// It is the public half of the user's own development key.
    Development(PathBuf),
    /// It lies in the image itself.
    Carried,
}

impl Trust {
    /// One word for data.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Given(_) => "given",
            Self::Development(_) => "development",
            Self::Carried => "carried",
        }
    }

    /// What a good signature by such a key shows.
    pub fn reach(&self) -> String {
        match self {
            Self::Given(path) => format!("by the key `{}`, which you named", path.display()),
            Self::Development(path) => format!("by your development key `{}`: made by this user", path.display()),
            Self::Carried => "by the key inside the image: shows that nothing is damaged, not who made it; \
                              `--key FILE` checks that too"
                .to_owned(),
        }
    }
}

/// Keys that do not come from the image.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// The one the user named.
    pub given: Option<Key>,
    /// The user's development key.
    pub development: Option<Key>,
}

/// A file that is no public key.
#[derive(Debug, thiserror::Error)]
#[error("`{}` is no minisign public key", .0.display())]
pub struct NoPublicKey(PathBuf);

impl Keys {
    /// Reads the key of `--key`, and the user's development key when there is one. Makes none.
    pub fn of_user(named: Option<&Path>) -> anyhow::Result<Self> {
        let given = named.map(|path| {
            let text = String::from_utf8_lossy(&fs_err::read(path)?).into_owned();
            if key_id(&text).is_none() {
                return Err(NoPublicKey(path.to_owned()).into());
            }
            anyhow::Ok(Key { text, trust: Trust::Given(path.to_owned()) })
        });
        let development = sign::development_public_key()?;
        let development = development.map(|(path, text)| Key { text, trust: Trust::Development(path) });
        Ok(Self { given: given.transpose()?, development })
    }

    /// The key for a signature: the named one; else the user's, when it made it; else the one in the image.
    fn for_signature(&self, signer: Option<&str>, carried: impl FnOnce() -> Option<String>) -> Option<Key> {
        let own = self.development.as_ref().filter(|key| signer.is_some() && key_id(&key.text).as_deref() == signer);
        let known = self.given.as_ref().or(own).cloned();
        known.or_else(|| Some(Key { text: carried()?, trust: Trust::Carried }))
    }
}

/// What a release's signature is worth.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Id of the key that made the signature, as minisign writes it.
    pub signer: Option<String>,
    /// The key it was checked with.
    pub key: Option<Key>,
    /// Why it does not hold.
    pub fault: Option<String>,
}

impl Verdict {
    /// Checks the signature of a release on `medium`.
    pub fn of(medium: &Medium, found: &Found, keys: &Keys) -> Self {
        let Some(signature) = &found.signature else {
            let fault = Some("`release.json.minisig` is missing".to_owned());
            return Self { signer: None, key: None, fault };
        };
        let signer = signature_key_id(signature);
        // A carried key that cannot be read is a fault of the initrd, which is checked on its own.
        let key = keys.for_signature(signer.as_deref(), || medium.carried_key(&found.folder).ok().flatten());
        let fault = match &key {
            None => Some("there is no key to check it with: the initrd carries none\nhint: `--key FILE`".to_owned()),
            Some(key) => sign::verify(&key.text, &found.json, signature).err().map(|error| format!("{error:#}")),
        };
        Self { signer, key, fault }
    }

    /// One line for people.
    pub fn sentence(&self) -> String {
        match (&self.fault, &self.key) {
            (Some(fault), _) => format!("BAD: {}", fault.split("\nhint").next().unwrap_or(fault)),
            (None, Some(key)) => format!("good, {}", key.trust.reach()),
            (None, None) => "not checked".to_owned(),
        }
    }

    /// As data.
    pub fn json(&self, release: Option<&agent_api::release::Release>) -> Value {
        json!({
            "good": self.fault.is_none(),
            "fault": self.fault,
            "keyId": self.signer,
            "trust": self.key.as_ref().map(|key| key.trust.word()),
            "developmentKey": release.map(|release| release.development_key),
        })
    }
}

/// Id of a public key, as minisign prints it: the eight bytes as one little-endian number in hex.
pub fn key_id(public_key: &str) -> Option<String> {
    let key = PublicKeyBox::from_string(public_key).ok()?.into_public_key().ok()?;
    id_text(key.keynum())
}

fn signature_key_id(signature: &str) -> Option<String> {
    id_text(SignatureBox::from_string(signature).ok()?.keynum())
}

fn id_text(bytes: &[u8]) -> Option<String> {
    Some(format!("{:016X}", u64::from_le_bytes(bytes.try_into().ok()?)))
}
