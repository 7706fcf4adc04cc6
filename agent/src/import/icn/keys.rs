//! Public ssh keys of a file, as `~/.ssh/id_ed25519.pub` or `authorized_keys` has them. Nothing of the file is ever shown: it
//! may be a private key.

use agent_api::site::check::is_public_key;

use super::{Input, Problem};

/// How files of private keys begin: PEM and OpenSSH (RFC 7468), `PuTTY`.
const PRIVATE: [&str; 2] = [" PRIVATE KEY-----", "PuTTY-User-Key-File-"];

/// The keys of a file; empty lines and comments are passed over.
pub(super) fn read(input: &Input, problems: &mut Vec<Problem>) -> Vec<String> {
    let problem = |line: u64, found: &str, expected: String| Problem {
        file: input.file.clone(),
        line,
        key: String::new(),
        found: found.to_owned(),
        expected,
    };
    let is_private = |line: &str| PRIVATE.iter().any(|mark| line.contains(mark));
    let lines =
        || (1..).zip(input.text.trim_start_matches('\u{feff}').lines()).map(|(number, line)| (number, line.trim()));
    if let Some((number, _)) = lines().find(|(_, line)| is_private(line)) {
        let hint = if std::path::Path::new(&input.file).extension().is_some_and(|ending| ending == "pub") {
            "`ssh-keygen -y -f FILE` prints it".to_owned()
        } else {
            format!("give `{}.pub`", input.file)
        };
        problems.push(problem(number, "a private key", format!("a public key: {hint}")));
        return Vec::new();
    }
    let before = problems.len();
    let mut keys = Vec::new();
    for (number, line) in lines().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        if is_public_key(line) {
            keys.push(line.to_owned());
        } else {
            let expected = "`TYPE BASE64 COMMENT`: the whole line of a `.pub` file".to_owned();
            problems.push(problem(number, "a line that is no public key", expected));
        }
    }
    if keys.is_empty() && problems.len() == before {
        problems.push(problem(0, "no key", "public keys, a line each".to_owned()));
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::{Input, read};

    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIHUj2nTRtTBGTKkZEZyEw4c3DPZi3s4aPbLy7KIw2Xx3";

    fn keys(file: &str, text: &str) -> (Vec<String>, Vec<String>) {
        let mut problems = Vec::new();
        let found = read(&Input { file: file.into(), text: text.into() }, &mut problems);
        (found, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn lines_of_a_file_are_public_keys_or_comments() {
        let text = format!(
            "\u{feff}# mine\r\n\r\n  ssh-ed25519 {KEY} me@example.org\r\nfrom=\"10.0.0.0/8\",no-pty ssh-ed25519 {KEY}\r\n"
        );
        let (found, problems) = keys("id.pub", &text);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(found[0], format!("ssh-ed25519 {KEY} me@example.org"));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn what_is_no_public_key_is_told_and_never_shown() {
        let table = [
            (
                "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2\n",
                "id",
                "id:1: found a private key, expected a public key: give `id.pub`",
            ),
            (" -----BEGIN RSA PRIVATE KEY-----\nhunter2\n", "id", "id:1: found a private key"),
            (
                "# mine\n-----BEGIN EC PRIVATE KEY-----\nhunter2\n",
                "id.pub",
                "id.pub:2: found a private key, expected a public key: `ssh-keygen -y -f FILE`",
            ),
            ("PuTTY-User-Key-File-3: ssh-ed25519\nhunter2\n", "a.ppk", "a.ppk:1: found a private key"),
            (
                "\n\nssh-ed25519 hunter2 me\n",
                "a.pub",
                "a.pub:3: found a line that is no public key, expected `TYPE BASE64 COMMENT`",
            ),
            ("hunter2", "a.pub", "a.pub:1: found a line that is no public key"),
            ("# nothing\n", "a.pub", "a.pub: found no key, expected public keys, a line each"),
        ];
        for (text, file, expected) in table {
            let (found, problems) = keys(file, text);
            assert_eq!((found.len(), problems.len()), (0, 1), "{problems:?}");
            assert!(problems[0].starts_with(expected) && !problems[0].contains("hunter2"), "{problems:?}");
        }
    }
}
