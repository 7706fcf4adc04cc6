//! Verifies that a manifest is that of the wanted release, and that the right key signed it.

use agent_api::proof;
use agent_api::release::{Digest, Release};
use minisign_verify::{PublicKey, Signature};

use super::fatal::Fatal;

/// What to do about a damaged medium.
pub const WRITE_AGAIN: &str = "write the image to the medium again and compare it (`foothold write` does both)";

/// Reads the public key file of the initrd.
pub fn public_key(text: &str) -> Result<PublicKey, Fatal> {
    PublicKey::decode(text).map_err(|error| {
        Fatal::medium("signature", format!("/etc/foothold/release.pub: {error}"), "a minisign public key", WRITE_AGAIN)
    })
}

/// Verifies the bytes of `release.json` found on `device`: digest, signature, shape.
pub fn verify(id: &str, manifest: &[u8], signature: &str, key: &PublicKey, device: &str) -> Result<Release, Fatal> {
    let found = Digest::of(manifest);
    if found.hex() != id {
        let found = format!("release.json on {device} is damaged: its digest is {}", found.hex());
        return Err(Fatal::medium("signature", found, id, WRITE_AGAIN));
    }
    let signed = Signature::decode(signature).and_then(|signature| key.verify(manifest, &signature, false));
    if let Err(error) = signed {
        let found = format!("the signature of release.json on {device} is not good: {error}");
        return Err(Fatal::medium(
            "signature",
            found,
            "a signature by the key that this image was made with",
            WRITE_AGAIN,
        ));
    }
    serde_json::from_slice(manifest).map_err(|error| {
        let found = format!("release.json on {device} is of another shape: {error}");
        Fatal::medium(
            "signature",
            found,
            "a manifest that this version understands",
            "build the image again with one version of `foothold`",
        )
    })
}

/// The proof in its reserved place, when it is one of this release by the same key. Anything else counts as no proof: a box
/// starts without one, too.
pub fn proof<'a>(id: &str, place: &'a [u8], key: &PublicKey) -> Option<&'a str> {
    let proof::Place::Signed { json, signature } = proof::read(place) else { return None };
    let signature = Signature::decode(&signature).ok()?;
    key.verify(json.as_bytes(), &signature, false).ok()?;
    let proof: proof::Proof = serde_json::from_str(json).ok()?;
    (proof.release == id).then_some(json)
}
