//! Being the init of a program, in a process of its own: it reaps every child that the process has.

use foothold_agent::host::supervise::supervise;

/// Writes which signals the program blocks, as the kernel tells it, into the file of its first argument.
const TELL: &str = "grep ^SigBlk: /proc/self/status > \"$0\"";

#[test]
fn a_program_gets_the_signals_that_its_init_waits_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let told = dir.path().join("told");
    let code = supervise(&["/bin/sh", "-c", TELL, told.to_str().expect("text")], || {}).expect("it ran");
    assert_eq!(code, 0);
    let told = fs_err::read_to_string(&told).expect("written");
    assert_eq!(told.trim(), "SigBlk:\t0000000000000000");
}
