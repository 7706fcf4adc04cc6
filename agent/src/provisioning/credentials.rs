//! The one user of Ironic's API: made at random at first boot, kept on DATA.

use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::host::files;

/// File in the folder of secrets.
pub const FILE: &str = "credentials.json";
/// Name of the user.
const USER: &str = "foothold";
/// The lowest cost that bcrypt has: a password of 256 random bits needs no slow hash, and Ironic checks it at requests.
const COST: u32 = 4;

/// User, password and the password's hash. The hash is kept because a new one at each start would restart Ironic for
/// nothing.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IronicCredentials {
    /// User.
    pub username: String,
    /// Password.
    pub password: String,
    /// bcrypt's hash of it.
    hash: String,
}

impl std::fmt::Debug for IronicCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IronicCredentials").field("username", &self.username).finish_non_exhaustive()
    }
}

impl IronicCredentials {
    /// Reads the credentials in `dir`. Makes new ones when there are none or they cannot be read.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(FILE);
        match fs_err::read(&path) {
            Ok(bytes) => match serde_json::from_slice::<Self>(&bytes) {
                Ok(kept) if bcrypt::verify(&kept.password, &kept.hash).unwrap_or(false) => return Ok(kept),
                Ok(_) => log::error!("`{}` holds a password and the hash of another: made anew", path.display()),
                Err(error) => log::error!("`{}` is damaged, and made anew: {error}", path.display()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let made = Self::new()?;
        files::write_durably(&path, &serde_json::to_vec(&made)?, files::SECRET)?;
        Ok(made)
    }

    fn new() -> anyhow::Result<Self> {
        let (secret, salt): ([u8; 32], [u8; 16]) = (rand::random(), rand::random());
        let password = URL_SAFE_NO_PAD.encode(secret);
        let hash = bcrypt::hash_with_salt(&password, COST, salt)?.format_for_version(bcrypt::Version::TwoY);
        Ok(Self { username: USER.to_owned(), password, hash })
    }

    /// The line that Ironic checks passwords against.
    pub fn password_file(&self) -> String {
        format!("{}:{}\n", self.username, self.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::{FILE, IronicCredentials};

    #[test]
    fn they_are_made_once_and_anew_when_damaged() {
        let dir = tempfile::tempdir().expect("a folder");
        let first = IronicCredentials::open(dir.path()).expect("made");
        assert!(first == IronicCredentials::open(dir.path()).expect("kept"));
        assert_eq!(first.password.len(), 43);
        assert!(first.password_file().starts_with("foothold:$2y$04$"), "{}", first.password_file());
        assert!(!format!("{first:?}").contains(&first.password));
        let text = fs_err::read_to_string(dir.path().join(FILE)).expect("text");
        for damage in ["{".to_owned(), text.replace(&first.password, "another")] {
            fs_err::write(dir.path().join(FILE), damage).expect("damaged");
            let next = IronicCredentials::open(dir.path()).expect("made anew");
            assert!(next != first && next == IronicCredentials::open(dir.path()).expect("kept"));
        }
    }
}
