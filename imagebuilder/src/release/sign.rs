//! Signatures: ed25519 in the form of minisign, so that `minisign -V` checks them too.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use blake2::{Blake2b512, Digest as _};
use minisign::{KeyPair, PublicKey, SecretKey, SecretKeyBox};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::signature::Ed25519KeyPair;

use crate::config::SecretReference;

/// Signature algorithm: Ed25519 over the BLAKE2b-512 hash (minisign's documentation, "Signature format").
const ALGORITHM: &[u8] = b"ED";
/// Where a secret key has its id, behind algorithms, salt and limits ("Secret key format").
const KEY_ID: Range<usize> = 54..62;
/// The Ed25519 seed.
const SEED: Range<usize> = 62..94;
/// The Ed25519 public key.
const PUBLIC: Range<usize> = 94..126;

/// The key that signs a release.
#[derive(Debug)]
pub struct Signer {
    secret: SecretKey,
    /// Text of the public key file.
    pub public_key: String,
    /// Whether it is a key that we made for development.
    pub development: bool,
}

/// `$XDG_CONFIG_HOME/foothold`, by default `~/.config/foothold`.
fn config_dir() -> Result<PathBuf> {
    let set = |key| std::env::var_os(key).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    base.map(|dir| dir.join("foothold")).context("neither XDG_CONFIG_HOME nor HOME is set")
}

impl Signer {
    /// The key that the definition names, or the user's development key, which is made when there is none.
    pub fn open(named: Option<&SecretReference>) -> Result<Self> {
        match named {
            Some(reference) => read_secret(reference).and_then(|text| Self::from_text(&text, false)).with_context(|| {
                format!("reading the signing key {reference}\nhint: expected an unencrypted minisign secret key (`minisign -G -W`)")
            }),
            None => Self::development(&development_path()?),
        }
    }

    fn development(path: &Path) -> Result<Self> {
        if !path.exists() {
            let pair = KeyPair::generate_unencrypted_keypair()?;
            let text = pair.sk.to_box(Some("foothold development key"))?.to_string();
            write_secret(path, &text)?;
        }
        Self::from_text(&fs_err::read_to_string(path)?, true).with_context(|| {
            format!("reading the development key `{}`\nhint: delete it and a new one is made", path.display())
        })
    }

    fn from_text(text: &str, development: bool) -> Result<Self> {
        let secret = SecretKeyBox::from_string(text)?.into_unencrypted_secret_key()?;
        let public = PublicKey::from_secret_key(&secret)?;
        Ok(Self { secret, public_key: public.to_box()?.to_string(), development })
    }

    /// The signature file of `bytes`. `comment` is signed too.
    ///
    /// Ed25519 as RFC 8032 has it, the same each time: `minisign::sign` mixes random bytes in, and two builds from the
    /// same lock would differ.
    pub fn sign(&self, bytes: &[u8], comment: &str) -> Result<String> {
        let key = self.secret.to_bytes();
        let (id, seed, public) = (&key[KEY_ID], &key[SEED], &key[PUBLIC]);
        let pair = Ed25519KeyPair::from_seed_and_public_key(seed, public).ok().context("the signing key is damaged")?;
        let signature = pair.sign(&Blake2b512::digest(bytes));
        let global = pair.sign(&[signature.as_ref(), comment.as_bytes()].concat());
        let first = BASE64.encode([ALGORITHM, id, signature.as_ref()].concat());
        let second = BASE64.encode(global.as_ref());
        Ok(format!("untrusted comment: foothold release\n{first}\ntrusted comment: {comment}\n{second}\n"))
    }
}

impl Signer {
    /// The seed of another Ed25519 key, for `purpose` alone: the same each time, and no way back to this key
    /// (HKDF with SHA-256, RFC 5869).
    pub fn derived_seed(&self, purpose: &str) -> Result<[u8; 32]> {
        let key = self.secret.to_bytes();
        let derived = Salt::new(HKDF_SHA256, b"foothold derived key").extract(&key[SEED]);
        let mut seed = [0; 32];
        let filled = derived.expand(&[purpose.as_bytes()], HKDF_SHA256).and_then(|okm| okm.fill(&mut seed));
        filled.ok().context("deriving a key")?;
        Ok(seed)
    }
}

/// Where the user's development key lies or would lie.
fn development_path() -> Result<PathBuf> {
    Ok(config_dir()?.join("development.key"))
}

/// The public half of the user's development key and where the key lies, when there is one. Makes none.
pub fn development_public_key() -> Result<Option<(PathBuf, String)>> {
    Ok(existing_development()?.map(|(path, signer)| (path, signer.public_key)))
}

fn existing_development() -> Result<Option<(PathBuf, Signer)>> {
    let path = development_path()?;
    if !path.exists() {
        return Ok(None);
    }
    let signer = Signer::development(&path)?;
    Ok(Some((path, signer)))
}

/// The key that a release of this definition will be signed with. `None` when that is a development key which is not
/// there yet. Makes none.
pub fn existing_signer(named: Option<&SecretReference>) -> Result<Option<Signer>> {
    match named {
        Some(_) => Signer::open(named).map(Some),
        None => Ok(existing_development()?.map(|(_, signer)| signer)),
    }
}

/// Whether `signature` is that of `bytes` by the key.
pub fn verify(public_key: &str, bytes: &[u8], signature: &str) -> Result<()> {
    let key = minisign_verify::PublicKey::decode(public_key).context("reading the public key")?;
    let signature = minisign_verify::Signature::decode(signature).context("reading the signature")?;
    if key.verify(bytes, &signature, false).is_err() {
        bail!("the signature is not by this key, or the file was changed");
    }
    Ok(())
}

/// Whether the signature says that it is by that key.
pub fn same_key(public_key: &str, signature: &str) -> bool {
    let key = minisign::PublicKeyBox::from_string(public_key).and_then(minisign::PublicKeyBox::into_public_key);
    let signature = minisign::SignatureBox::from_string(signature);
    key.is_ok_and(|key| signature.is_ok_and(|signature| signature.keynum() == key.keynum()))
}

fn read_secret(reference: &SecretReference) -> Result<String> {
    match reference {
        SecretReference::File(path) => Ok(fs_err::read_to_string(path)?),
        SecretReference::Env(name) => std::env::var(name).with_context(|| format!("the variable `{name}` is not set")),
    }
}

fn write_secret(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let parent = path.parent().context("a key lies in a folder")?;
    fs_err::create_dir_all(parent)?;
    // For its owner alone.
    let mut partial = tempfile::NamedTempFile::new_in(parent)?;
    partial.write_all(text.as_bytes())?;
    partial.as_file().sync_all()?;
    // Two first builds at once must end with the same key: the first name wins.
    match partial.persist_noclobber(path) {
        Err(error) if error.error.kind() != std::io::ErrorKind::AlreadyExists => Err(error.error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Signer, verify};

    #[test]
    fn a_derived_key_depends_on_the_key_and_the_purpose_only() {
        let dir = tempfile::tempdir().expect("a folder");
        let signer = Signer::development(&dir.path().join("key")).expect("a key");
        let other = Signer::development(&dir.path().join("other")).expect("a key");
        let seed = signer.derived_seed("a").expect("derived");
        assert_eq!(seed, signer.derived_seed("a").expect("derived"));
        assert_ne!(seed, signer.derived_seed("b").expect("derived"));
        assert_ne!(seed, other.derived_seed("a").expect("derived"));
        assert_ne!(seed, signer.secret.to_bytes()[super::SEED]);
    }

    #[test]
    fn a_signature_holds_for_its_bytes_only_and_is_the_same_each_time() {
        let dir = tempfile::tempdir().expect("a folder");
        let signer = Signer::development(&dir.path().join("key")).expect("a key");
        let signature = signer.sign(b"release", "built 7").expect("signed");
        assert_eq!(signature, signer.sign(b"release", "built 7").expect("signed"));
        verify(&signer.public_key, b"release", &signature).expect("holds");
        verify(&signer.public_key, b"releasE", &signature).expect_err("does not hold");
        let minisign = minisign::SignatureBox::from_string(&signature).expect("minisign reads it");
        let key =
            minisign::PublicKeyBox::from_string(&signer.public_key).expect("a key").into_public_key().expect("a key");
        minisign::verify(&key, &minisign, std::io::Cursor::new(b"release"), true, false, false)
            .expect("minisign agrees");
        assert_eq!(minisign.trusted_comment().expect("a comment"), "built 7");
        let again = Signer::development(&dir.path().join("key")).expect("the same key");
        assert_eq!(again.public_key, signer.public_key);
    }
}
