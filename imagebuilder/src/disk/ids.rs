//! Identifiers of disks, partitions and filesystems: derived from the release id, so that a release always gives the
//! same bytes and two releases never share an identifier.

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// 32 bytes that belong to `purpose` within the release `release_id`.
fn derive(release_id: &str, purpose: &str) -> [u8; 32] {
    let hash = Sha256::new()
        .chain_update(b"foothold id\0")
        .chain_update(release_id.as_bytes())
        .chain_update(b"\0")
        .chain_update(purpose.as_bytes());
    hash.finalize().into()
}

/// A UUID for `purpose`, version 8 (RFC 9562, section 5.8: the bits are the application's own).
pub fn uuid(release_id: &str, purpose: &str) -> Uuid {
    let bytes = derive(release_id, purpose);
    let mut head = [0; 16];
    head.copy_from_slice(&bytes[..16]);
    uuid::Builder::from_custom_bytes(head).into_uuid()
}

/// A 32-bit serial number for `purpose`.
pub fn serial(release_id: &str, purpose: &str) -> u32 {
    let bytes = derive(release_id, purpose);
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// A 64-bit seed for `purpose`.
pub fn seed(release_id: &str, purpose: &str) -> u64 {
    uuid(release_id, purpose).as_u64_pair().0
}

#[cfg(test)]
mod tests {
    use super::{serial, uuid};

    #[test]
    fn identifiers_depend_on_the_release_and_the_purpose_only() {
        assert_eq!(uuid("a", "disk"), uuid("a", "disk"));
        assert_ne!(uuid("a", "disk"), uuid("b", "disk"));
        assert_ne!(uuid("a", "disk"), uuid("a", "ESP"));
        assert_ne!(serial("a", "ESP"), serial("a", "SITE"));
        assert_eq!(uuid("a", "disk").get_version_num(), 8);
    }
}
