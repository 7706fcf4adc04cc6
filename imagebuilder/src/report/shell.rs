//! Words of commands that are printed for people: what they paste must mean the same to a shell.

use std::path::Path;

/// A path as a word of a POSIX shell ("Quoting", XCU 2.2): as it is, or in single quotes.
pub fn shell_word(path: impl AsRef<Path>) -> String {
    let text = path.as_ref().to_string_lossy();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(&b) || !b.is_ascii();
    let option = text.starts_with('-');
    if !text.is_empty() && text.bytes().all(plain) && !option {
        return text.into_owned();
    }
    let text = if option { format!("./{text}") } else { text.into_owned() };
    if text.bytes().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::shell_word;
    use crate::host::command::Run;

    #[test]
    fn a_shell_reads_a_word_as_the_path_that_it_is() {
        for path in ["My Appliance_1.0/appliance.yaml", "it's", "a;b $HOME `id` \"x\" *", "plain/a-1.0", "é"] {
            let command = format!("printf %s {}", shell_word(path));
            let said = Run::new("sh").args(["-c", &command]).output().expect("a shell");
            assert_eq!(String::from_utf8_lossy(&said), path);
        }
        assert_eq!(shell_word("-n"), "./-n");
        assert_eq!(shell_word("-n x"), "'./-n x'");
    }
}
