//! What this process has of whoever started it, where that would change what a build makes.

use nix::sys::stat::{Mode, umask};

/// The mask of new files that everything is made under, so that folders of a tree have the same modes whoever builds it.
/// What must be private says so by its own mode.
const MASK: Mode = Mode::S_IWGRP.union(Mode::S_IWOTH);

/// Takes on the mask. Programs that are started later have it, too.
pub fn settle() {
    umask(MASK);
}
