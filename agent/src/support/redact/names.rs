//! Names whose value is a secret.

/// Words of which one makes a name a secret's.
const WORDS: &[&str] = &[
    "password",
    "passwd",
    "passwords",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "secrets",
    "token",
    "tokens",
    "apikey",
    "credential",
    "credentials",
    "cookie",
    "psk",
    "authtoken",
    "identitytoken",
    "registrytoken",
    "bearer",
    "signature",
    "dockerconfigjson",
    "dockercfg",
    "privatekey",
    "secretkey",
    "accesskey",
    "hashedpassword",
    "clientsecret",
    "otp",
    "creds",
    "community",
];
/// Words that make a secret's name with `key`.
const BEFORE_KEY: &[&str] = &[
    "access",
    "api",
    "private",
    "secret",
    "encryption",
    "signing",
    "client",
    "shared",
    "account",
    "master",
    "session",
    "auth",
    "ssh",
    "host",
    "certificate",
    "storage",
    "service",
    "deploy",
    "wrapping",
    "data",
    "root",
    "preshared",
    "aes",
    "hmac",
    "tsig",
    "wep",
    "wpa",
    "tls",
    "ssl",
    "webhook",
    "recovery",
    "unseal",
];
/// Whole names.
const WHOLE: &[&str] = &[
    "auth",
    "pin",
    "key-data",
    "sig",
    "jwt",
    "dsn",
    "foothold.site",
    "masterauth",
    "rediscli_auth",
    // cloud-init's `ssh_keys`.
    "rsa_private",
    "dsa_private",
    "ecdsa_private",
    "ed25519_private",
];
/// Last words of names that end like a password's and are none.
const NO_PASS: &[&str] = &["bypass", "compass", "overpass", "underpass", "surpass", "trespass"];
/// Last words of names whose value tells something about a secret but is not secret.
const ABOUT: &[&str] = &[
    "name",
    "names",
    "ref",
    "refs",
    "file",
    "files",
    "path",
    "dir",
    "directory",
    "id",
    "ids",
    "type",
    "seconds",
    "ttl",
    "expiration",
    "expires",
    "expiry",
    "count",
    "length",
    "size",
    "namespace",
    "url",
    "uri",
    "endpoint",
    "audience",
    "audiences",
    "issuer",
    "version",
    "policy",
    "provider",
    "mode",
    "enabled",
    "hint",
    "algorithm",
    "key_name",
    "lifetime",
    "controller",
    "cleaner",
    "signer",
    "mount",
    "mounts",
    "volume",
    "volumes",
    "at",
    "key_ref",
    "keyref",
    "time",
    "age",
];
/// Ends of names without any sign between their words.
const ENDS: &[&str] =
    &["password", "passwd", "passphrase", "secret", "token", "apikey", "tokensha256", "privatekey", "rootpw", "bindpw"];

/// Whether the value of this name is a secret: `DB_PASSWORD`, `--api-key`, `clientSecret`, `client-key-data`.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    let lower = name.to_ascii_lowercase();
    if WHOLE.contains(&lower.as_str()) {
        return true;
    }
    let words = words(name);
    let Some(last) = words.last() else { return false };
    if ABOUT.contains(&last.as_str()) {
        return false;
    }
    let of_password = last == "pw" || (last.ends_with("pass") && !NO_PASS.contains(&last.as_str()));
    let of_key = |pair: &[String]| pair[1] == "key" && BEFORE_KEY.contains(&pair[0].as_str());
    // A folder whose name has such a word is none.
    !name.contains('/')
        && (of_password
            || words.iter().any(|word| WORDS.contains(&word.as_str()))
            || words.windows(2).any(of_key)
            || ENDS.iter().any(|end| lower.ends_with(end)))
}

/// Whether all values of a list or table of this name are secrets. `auth` is the name of whole sections of settings.
pub(super) fn is_collection(name: &str) -> bool {
    name == "chpasswd" || (is_secret(name) && !name.eq_ignore_ascii_case("auth"))
}

/// Whether what has this name within a secret tells only something about it: `secret: { secretName: x, items: [] }`.
pub(super) fn is_about(name: &str) -> bool {
    let about = ["items", "key", "optional", "user", "username", "email", "groups"];
    words(name).last().is_some_and(|last| ABOUT.iter().chain(&about).any(|word| word == last))
}

/// The words of a name, in small letters: split at signs, and where a capital follows a small letter.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in name.chars() {
        let begins = letter.is_ascii_uppercase() && before.is_ascii_lowercase();
        if (!letter.is_ascii_alphanumeric() || begins) && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if letter.is_ascii_alphanumeric() {
            words.last_mut().into_iter().for_each(|word| word.push(letter.to_ascii_lowercase()));
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::is_secret;

    #[test]
    fn names_of_secrets_are_told_from_names_about_them() {
        for name in [
            "password",
            "DB_PASSWORD",
            "--api-key",
            "clientSecret",
            "client-key-data",
            "AWS_SECRET_ACCESS_KEY",
            "hashed_passwd",
            "auth",
            ".dockerconfigjson",
            "X-Auth-Token",
            "tokenSha256",
            "bmcPassword",
            "mypassword",
            "foothold.site",
            "--certificate-key",
            "identitytoken",
            "password_hash",
            "GITHUB_TOKEN",
            "azure.storage-key",
            "DB_PASS",
            "userpass",
            "SSHPASS",
            "db_pw",
            "olcRootPW",
            "requirepass",
            "rsa_private",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "secretName",
            "token-auth-file",
            "credentialsName",
            "secretRef",
            "user",
            "author",
            "tokenExpirationSeconds",
            "key",
            "monkey",
            "imagePullSecretNames",
            "tls-private-key-file",
            "AWS_ACCESS_KEY_ID",
            "/var/secrets/x",
            "keyboard",
            "",
            "token-cleaner-controller",
            "compass",
            "tls-bypass",
            "passthrough",
            "rsa_public",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
