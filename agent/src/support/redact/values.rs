//! The exact values that this box keeps secret: those of all Secrets, BMCs' credentials among them, and of its key files.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::Value;
use walkdir::WalkDir;

use super::names::is_secret;
use crate::host::runner::Runner;

/// Shorter values are no secrets, and stand everywhere.
const LEAST: usize = 4;
/// A line of a text that is one word of this length is a part of a key.
const LINE: usize = 16;
/// Most bytes of a file of keys.
const MOST_FILE: u64 = 256 * 1024;
const DEADLINE: Duration = Duration::from_secs(20);
/// Asks the API server for all Secrets.
const SECRETS: [&str; 7] = [
    "kubectl",
    "--kubeconfig=/etc/kubernetes/super-admin.conf",
    "--request-timeout=15s",
    "get",
    "secrets",
    "--all-namespaces",
    "--output=json",
];
/// Files and folders of the box that hold keys, tokens and passwords.
const KEYS: &[&str] = &[
    "etc/kubernetes",
    "etc/ssh",
    "var/lib/kubelet/pki",
    "var/lib/foothold/access",
    "var/lib/foothold/clusters",
    "var/lib/foothold/etc-kubernetes",
    "var/lib/foothold/provisioning",
    "var/lib/foothold/site.yaml",
    "var/lib/foothold/site-in-use.json",
    "var/lib/foothold/ssh",
    "var/lib/foothold/uploads/apt.key",
    "var/lib/foothold/web",
];
/// Keys in Secrets whose values need not be hidden.
const OPEN: &[&str] =
    &["namespace", "username", "user", "name", "type", "url", "host", "port", "email", "login", "database", "address"];

/// Values that must not leave the box.
#[derive(Default)]
pub(crate) struct Values {
    found: BTreeSet<String>,
    /// Whether the API server told its Secrets.
    pub(crate) secrets: bool,
}

impl Values {
    /// Those of the box at `root`.
    pub(crate) fn of_box(root: &Path, runner: &dyn Runner) -> Self {
        let mut values = Self::default();
        for place in KEYS {
            for entry in WalkDir::new(root.join(place)).follow_links(true).max_depth(6).into_iter().flatten() {
                if entry.file_type().is_file() {
                    values.file(entry.path());
                }
            }
        }
        let line = fs_err::read_to_string(root.join("proc/cmdline")).unwrap_or_default();
        for word in line.split_whitespace() {
            if let Some((name, value)) = word.split_once('=').filter(|(name, _)| is_secret(name)) {
                values.add(name, value.as_bytes());
            }
        }
        let answer = runner.run(&SECRETS, b"", DEADLINE).ok();
        let list = answer.and_then(|output| serde_json::from_slice::<Value>(&output.stdout).ok());
        if let Some(items) = list.as_ref().and_then(|list| list["items"].as_array()) {
            for item in items {
                values.object(item);
            }
            values.secrets = true;
        }
        values
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.found.iter().map(String::as_str)
    }

    /// Collects a file that holds a key. Certificates and public keys are passed over.
    fn file(&mut self, path: &Path) {
        let public =
            path.extension().is_some_and(|extension| ["crt", "pub", "pem", "yaml"].iter().any(|it| extension == *it));
        let site = path.ends_with("site.yaml");
        let mut text = String::new();
        let opened = fs_err::File::open(path);
        let read = opened.and_then(|file| file.take(MOST_FILE).read_to_string(&mut text));
        if (public && !site) || read.is_err() {
            // A kubelet's `.pem` holds its key beside its certificate.
            if !text.contains("PRIVATE KEY") {
                return;
            }
        }
        self.text(&text);
    }

    /// An object of kind Secret.
    fn object(&mut self, object: &Value) {
        let data = object["data"].as_object().into_iter().flatten();
        let data: Vec<(&String, Vec<u8>)> =
            data.filter_map(|(key, value)| Some((key, STANDARD.decode(value.as_str()?).ok()?))).collect();
        let of = |names: &[&str]| data.iter().find(|(key, _)| names.contains(&key.as_str())).map(|(_, value)| value);
        if let (Some(user), Some(password)) = (of(&["username", "user"]), of(&["password"])) {
            let both = [user.as_slice(), b":", password.as_slice()].concat();
            self.put(&STANDARD.encode(both));
        }
        for (key, value) in data {
            self.add(key, &value);
        }
    }

    /// The value of a key, in all the forms that it may take.
    fn add(&mut self, key: &str, value: &[u8]) {
        let lower = key.to_ascii_lowercase();
        let ending = lower.rsplit('.').next().unwrap_or_default();
        let open = OPEN.contains(&lower.as_str()) || matches!(ending, "crt" | "pub");
        if open && !is_secret(key) {
            return;
        }
        let Ok(text) = std::str::from_utf8(value) else {
            return self.encoded(value);
        };
        let text = text.trim_end_matches(['\n', '\r']);
        if text.contains('\n') || text.starts_with(['{', '[']) {
            self.text(text);
            self.put(text);
            return self.encoded(value);
        }
        if is_secret(key) || text.len() >= super::LONG {
            self.forms(text);
        }
        if text.as_bytes() != value {
            self.encoded(value);
        }
    }

    /// What is secret in a text of many lines: parts of keys, and values of names that say so.
    fn text(&mut self, text: &str) {
        // Digits alone are JSON, too, and may be a password.
        if let Ok(value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(text) {
            return self.json("", &value);
        }
        for line in text.lines().map(str::trim) {
            let one_word = line.len() >= LINE && !line.contains(char::is_whitespace) && !line.contains(':');
            if one_word && !line.starts_with("-----") {
                self.put(line);
            }
            let line = line.trim_start_matches("- ").trim_start_matches("export ");
            if let Some((name, value)) = line.split_once([':', '=']) {
                let value = value.trim().trim_matches(['"', '\'', ',']);
                if is_secret(name.trim().trim_matches(['"', '\''])) && !value.starts_with(['|', '>', '{', '[', '/']) {
                    self.forms(value);
                }
            }
        }
    }

    fn json(&mut self, name: &str, value: &Value) {
        match value {
            Value::String(text) if is_secret(name) => {
                self.forms(text);
                // Docker's `auth` is user and password.
                let decoded = STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                if let Some((_, password)) = decoded.as_deref().and_then(|both| both.split_once(':')) {
                    self.forms(password);
                }
            }
            Value::String(text) if text.contains('\n') => self.text(text),
            Value::Array(list) => list.iter().for_each(|value| self.json(name, value)),
            Value::Object(map) => map.iter().for_each(|(name, value)| self.json(name, value)),
            _ => {}
        }
    }

    /// A value as it is, in JSON, in a URL, in base64.
    fn forms(&mut self, text: &str) {
        if text.len() < LEAST || matches!(text, "true" | "false" | "null" | "none") {
            return;
        }
        self.put(text);
        let json = Value::from(text).to_string();
        self.put(json.trim_matches('"'));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let letters =
            text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
        self.put(&letters.collect::<String>());
        self.encoded(text.as_bytes());
    }

    fn encoded(&mut self, bytes: &[u8]) {
        for text in [STANDARD.encode(bytes), URL_SAFE.encode(bytes)] {
            self.put(text.trim_end_matches('='));
        }
    }

    fn put(&mut self, text: &str) {
        if text.len() >= LEAST {
            self.found.insert(text.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    use super::super::Redactor;
    use super::Values;
    use crate::host::runner::FakeRunner;

    fn write(root: &std::path::Path, path: &str, text: &str) {
        let path = root.join(path);
        fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs_err::write(path, text).expect("written");
    }

    #[test]
    fn what_the_box_keeps_secret_goes_wherever_it_stands() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path();
        write(
            root,
            "etc/kubernetes/pki/ca.key",
            "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIPlanted1Planted1\n-----END EC PRIVATE KEY-----\n",
        );
        write(
            root,
            "etc/kubernetes/pki/ca.crt",
            "-----BEGIN CERTIFICATE-----\nMIIBPublicPublicPublic\n-----END CERTIFICATE-----\n",
        );
        write(
            root,
            "etc/kubernetes/admin.conf",
            "users:\n- user:\n    client-key-data: UGxhbnRlZDI=\n    token: planted-3\n",
        );
        write(root, "var/lib/foothold/access/token.sha256", &"4".repeat(64));
        write(root, "var/lib/foothold/provisioning/password", "planted-five-5555\n");
        let encode = |text: &str| STANDARD.encode(text);
        let docker = json!({"auths": {"r.example": {"auth": encode("joe:planted-6")}}}).to_string();
        let secrets = json!({"items": [
            {"data": {"username": encode("admin"), "password": encode("calvin")}},
            {"data": {".dockerconfigjson": encode(&docker), "namespace": encode("kube-system"), "ca.crt": encode("-----BEGIN")}},
            {"data": {"value": encode("#cloud-config\nchpasswd:\n  password: planted 7\n"), "x": encode("short"), "y": encode("p+l/a n\"8")}},
        ]});
        let runner = FakeRunner::default().answer("kubectl", &secrets.to_string());
        let values = Values::of_box(root, &runner);
        assert!(values.secrets);
        let redactor = Redactor::new(&values);
        for secret in [
            "MHcCAQEEIPlanted1Planted1",
            "UGxhbnRlZDI=",
            "planted-3",
            "planted-five-5555",
            "planted-6",
            "planted 7",
            "p+l/a n\"8",
            "p%2Bl%2Fa%20n%228",
            "p+l/a n\\\"8",
        ] {
            let said = redactor.text(&format!("it said {secret} there"));
            assert!(said.starts_with("it said [redacted]") && said.ends_with(" there"), "{secret}: {said}");
        }
        for secret in ["planted-3", "planted-6", "planted 7", "p+l/a n\"8"] {
            let coded = encode(secret);
            assert!(!redactor.text(&coded).contains(coded.trim_end_matches('=')), "{secret}");
        }
        assert_eq!(redactor.text(&"4".repeat(64)), "[redacted]");
        assert_eq!(redactor.text("calvin, Calvinism and calvinism"), "[redacted], Calvinism and calvinism");
        assert_eq!(redactor.text(&format!("h {}", encode("admin:calvin"))), "h [redacted]");
        let open = "admin of kube-system, MIIBPublicPublicPublic, short, #cloud-config";
        assert_eq!(redactor.text(open), open);
    }

    #[test]
    fn an_api_server_that_is_silent_is_told() {
        let dir = tempfile::tempdir().expect("a folder");
        let runner: Arc<dyn crate::host::Runner> = Arc::new(FakeRunner::default().fail("kubectl", 1, "no answer"));
        assert!(!Values::of_box(dir.path(), runner.as_ref()).secrets);
    }
}
