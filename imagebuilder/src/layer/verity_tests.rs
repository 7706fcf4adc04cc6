//! Golden values were printed by `veritysetup format --no-superblock --hash-offset` (cryptsetup 2.6).

use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use rstest::rstest;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use super::{VerityError, append, check, salt_for};

/// A file of `blocks` blocks, each starting with its number, less `short` bytes.
fn sample(blocks: u64, short: usize) -> NamedTempFile {
    let mut bytes: Vec<u8> = (0..blocks)
        .flat_map(|number| {
            let mut block = vec![0xA5; super::BLOCK_SIZE];
            block[..8].copy_from_slice(&number.to_le_bytes());
            block
        })
        .collect();
    bytes.truncate(bytes.len() - short);
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(&bytes).expect("data");
    file
}

fn tree_digest(file: &NamedTempFile, data_bytes: u64) -> String {
    let bytes = fs_err::read(file.path()).expect("reads");
    hex::encode(Sha256::digest(&bytes[usize::try_from(data_bytes).expect("small")..]))
}

#[rstest]
#[case::one_block(
    1,
    "b6b434cddbe83af281297757bef01360f2baf9d3cbbbb31ec552ff9a6b5c9dc1",
    0,
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)]
#[case::two_blocks(
    2,
    "5661f014cb4db8906db8abf77de9fc416d03dfa28ae1f83dedc140e6c1399238",
    1,
    "6da04609c9869867ee22ff3f249ecd98f786be3f1a8e335d342afe2fdde6a038"
)]
#[case::one_full_hash_block(
    128,
    "6f1b82fb00e5a3d731ea7e3919e689e725c62d9161086255ff94d89f0b1bfe71",
    1,
    "705520548e679f444b6dff24b0cf5a7fffe6593b244d4f33ef3b55ba5ab414ae"
)]
#[case::two_levels(
    129,
    "0cd0ddc36710891c3502830466dd9fc7b47073998d484a4c7452034cb014e2f7",
    3,
    "50d7d0dfc0ee72f838b3be823693c9a208586e8334924a7d93e8a9c0766e54c3"
)]
#[case::two_full_levels(
    16384,
    "4627cf5a315c785f8716f5bdaa7dad5411f7f9543f65b873f91d1778df2bea12",
    129,
    "717e67f29f91a098ff33aeb0c77d7b1fe131be12004b029676bfad341e82893b"
)]
#[case::three_levels(
    16385,
    "3e1866ba9d6efe6f7f9a5d7368cef1fdc32b68e488444550dce330f496bae8a6",
    132,
    "d7032d6edcebab67d53c76fb93e4ceaac8e029fdf3b53bfab8f40910d04c78ac"
)]
fn the_tree_is_the_one_veritysetup_writes(
    #[case] blocks: u64,
    #[case] root_hash: &str,
    #[case] tree_blocks: u64,
    #[case] tree_sha256: &str,
) {
    let file = sample(blocks, 0);
    let verity = append(file.path(), &salt_for("os")).expect("a tree");
    assert_eq!(verity.root_hash, root_hash);
    assert_eq!(verity.data_bytes, blocks * 4096);
    assert_eq!(verity.total_bytes, (blocks + tree_blocks) * 4096);
    assert_eq!(fs_err::metadata(file.path()).expect("metadata").len(), verity.total_bytes);
    assert_eq!(tree_digest(&file, verity.data_bytes), tree_sha256);
    check(file.path(), &verity).expect("whole");
}

#[test]
fn a_file_that_ends_within_a_block_is_padded_with_zeros() {
    let file = sample(3, 100);
    let verity = append(file.path(), &salt_for("os")).expect("a tree");
    assert_eq!(verity.data_bytes, 3 * 4096);
    let bytes = fs_err::read(file.path()).expect("reads");
    assert!(bytes[3 * 4096 - 100..3 * 4096].iter().all(|byte| *byte == 0));
}

#[rstest]
#[case::in_the_data(200 * 4096 + 17, "data block 200 (byte 819200) does not match its digest")]
#[case::in_the_lowest_level(300 * 4096 + 4096 + 33, "data block 1 (byte 4096) does not match its digest")]
#[case::in_the_top_level(300 * 4096 + 5, "the hash tree does not match the root hash")]
fn a_flipped_bit_is_found(#[case] at: u64, #[case] message: &str) {
    let file = sample(300, 0);
    let verity = append(file.path(), &salt_for("os")).expect("a tree");
    let mut byte = [0];
    file.as_file().read_exact_at(&mut byte, at).expect("reads");
    file.as_file().write_all_at(&[byte[0] ^ 1], at).expect("writes");
    let error = check(file.path(), &verity).expect_err("damaged");
    assert!(error.to_string().starts_with(message), "{error}");
}

#[test]
fn a_cut_off_file_is_found_by_its_size() {
    let file = sample(300, 0);
    let verity = append(file.path(), &salt_for("os")).expect("a tree");
    file.as_file().set_len(verity.total_bytes - 1).expect("cuts");
    assert!(matches!(check(file.path(), &verity), Err(VerityError::Size { .. })));
}

#[test]
fn an_empty_file_is_refused() {
    assert!(matches!(append(sample(0, 0).path(), b""), Err(VerityError::Empty)));
}
