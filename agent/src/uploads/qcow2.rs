//! Whether a qcow2 image can be used by whom it is served to: nobody there has another file that it needs. Pure.
//!
//! Source: QEMU, `docs/interop/qcow2.rst`, "Header".

/// Bytes of the header that are looked at.
pub(super) const HEAD: usize = 104;
const MAGIC: &[u8] = b"QFI\xfb";
/// Bytes of a header of version 2.
const HEAD_2: usize = 72;
/// Sizes of clusters that QEMU takes, as powers of two.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// Incompatible features.
const CORRUPT: u64 = 1 << 1;
const DATA_FILE: u64 = 1 << 2;

/// What is wrong with an image that begins with these bytes; nothing when it is no qcow2.
pub(super) fn problem(head: &[u8]) -> Option<String> {
    if !head.starts_with(MAGIC) {
        return None;
    }
    let short = |at: usize| head.get(at..at + 4).and_then(|it| it.try_into().ok()).map(u32::from_be_bytes);
    let long = |at: usize| head.get(at..at + 8).and_then(|it| it.try_into().ok()).map(u64::from_be_bytes);
    let whole = (|| Some((short(4)?, long(8)?, short(20)?, short(32)?)))().filter(|_| head.len() >= HEAD_2);
    let Some((version, backing, cluster_bits, encrypted)) = whole else {
        return Some("it begins as a qcow2 image and ends within its header".to_owned());
    };
    let features = if version == 3 { long(72).unwrap_or(0) } else { 0 };
    let of_one_file = "hint: `qemu-img convert -O qcow2 IMAGE WHOLE` makes one file of it";
    if !matches!(version, 2 | 3) {
        Some(format!("it is a qcow2 image of version {version}, expected 2 or 3"))
    } else if backing != 0 {
        Some(format!("it is a qcow2 image that needs a backing file, which is not here; {of_one_file}"))
    } else if features & DATA_FILE != 0 {
        Some(format!("it is a qcow2 image that has its bytes in a data file, which is not here; {of_one_file}"))
    } else if features & CORRUPT != 0 {
        Some("it is a qcow2 image that is marked as corrupt; hint: `qemu-img check -r all`".to_owned())
    } else if encrypted != 0 {
        Some("it is an encrypted qcow2 image, whose key nobody here has".to_owned())
    } else if !CLUSTER_BITS.contains(&cluster_bits) {
        Some(format!("it is a qcow2 image with clusters of 2^{cluster_bits} bytes, expected 2^9 to 2^21"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::problem;

    /// A header of this version, with 32 bits changed at a place.
    fn head(version: u32, at: usize, value: u32) -> Vec<u8> {
        let mut head = vec![0; 104];
        head[..4].copy_from_slice(b"QFI\xfb");
        for (at, value) in [(4, version), (20, 16), (28, 1 << 20), (at, value)] {
            head[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        head
    }

    #[rstest]
    #[case::version_2(head(2, 20, 16), None)]
    #[case::version_3(head(3, 20, 16), None)]
    #[case::raw(vec![0; 104], None)]
    #[case::empty(Vec::new(), None)]
    #[case::cut(head(3, 20, 16)[..40].to_vec(), Some("ends within its header"))]
    #[case::version_1(head(1, 20, 16), Some("version 1"))]
    #[case::backing_file(head(3, 12, 104), Some("needs a backing file"))]
    #[case::data_file(head(3, 76, 4), Some("data file"))]
    #[case::no_features_in_version_2(head(2, 76, 4), None)]
    #[case::corrupt(head(3, 76, 2), Some("corrupt"))]
    #[case::encrypted(head(2, 32, 1), Some("encrypted"))]
    #[case::clusters(head(3, 20, 40), Some("2^40"))]
    fn what_nobody_could_use_is_told(#[case] head: Vec<u8>, #[case] expected: Option<&str>) {
        let found = problem(&head);
        assert_eq!(found.is_some(), expected.is_some(), "{found:?}");
        assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()));
    }
}
