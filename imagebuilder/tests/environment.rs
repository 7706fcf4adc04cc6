//! What the builder's caller has set is not seen in what the builder makes.

use std::os::unix::fs::PermissionsExt as _;

use foothold::host::command::Run;
use foothold::host::environment;
use nix::sys::stat::{Mode, umask};

/// The only test of its process: the mask belongs to all threads.
#[test]
fn folders_have_the_same_modes_whatever_mask_the_caller_has() {
    umask(Mode::from_bits_truncate(0o077));
    environment::settle();
    let dir = tempfile::tempdir().expect("a folder");
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    fs_err::create_dir(&ours).expect("made");
    Run::new("mkdir").arg(&theirs).output().expect("mkdir runs");
    for made in [ours, theirs] {
        let mode = fs_err::metadata(&made).expect("there").permissions().mode() & 0o7777;
        assert_eq!(mode, 0o755, "{}", made.display());
    }
}
