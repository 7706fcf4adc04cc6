//! What people's tools left encrypted in their files: nothing of it is what it stands for.

/// How a value that sops encrypted begins (sops, "Encrypting using AES256-GCM").
const SOPS_VALUE: &str = "ENC[AES256_GCM,";
/// Whole texts: how they begin, whose they are, and how they are decrypted.
const WHOLE: [(&str, &str); 3] = [
    (
        "$ANSIBLE_VAULT;",
        "is still encrypted by Ansible's vault; hint: decrypt it first, as by `ansible-vault view FILE`",
    ),
    (
        "-----BEGIN AGE ENCRYPTED FILE-----",
        "is still encrypted by age; hint: decrypt it first, as by `age --decrypt --identity KEY FILE`",
    ),
    ("-----BEGIN PGP MESSAGE-----", "is still encrypted by PGP; hint: decrypt it first, as by `gpg --decrypt FILE`"),
];
const SOPS: &str = "is still encrypted by sops; hint: decrypt it first, as by `sops --decrypt FILE`";

/// What is to be said of an encrypted text, behind its name; none of a text that is what it says.
pub fn told(text: &str) -> Option<&'static str> {
    let start = text.trim_start();
    if let Some((_, told)) = WHOLE.iter().find(|(begin, _)| start.starts_with(begin)) {
        return Some(told);
    }
    (start.starts_with(SOPS_VALUE) || text.contains(SOPS_VALUE) && is_file_of_sops(text)).then_some(SOPS)
}

/// Whether a text says how it was encrypted, as sops writes it into YAML, JSON, INI and dotenv.
fn is_file_of_sops(text: &str) -> bool {
    let says = |line: &str| line.starts_with("sops:") || line.starts_with("sops_") || line.trim() == "[sops]";
    text.lines().any(says) || text.contains("\"sops\":")
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn a_value_and_a_file_are_told_from_texts_about_them() {
        let sops = Some("sops");
        let table = [
            ("ENC[AES256_GCM,data:eA==,iv:aQ==,tag:dA==,type:str]", sops),
            ("a: ENC[AES256_GCM,data:eA==]\nsops:\n    version: 3.9.0\n", sops),
            ("{\"a\": \"ENC[AES256_GCM,data:eA==]\",\n  \"sops\": {}}", sops),
            ("{\"a\":\"ENC[AES256_GCM,data:eA==]\",\"sops\":{\"version\":\"3.9.0\"}}", sops),
            ("A=ENC[AES256_GCM,data:eA==]\nsops_version=3.9.0\n", sops),
            ("[a]\nb = ENC[AES256_GCM,data:eA==]\n\n[sops]\nversion = 3.9.0\n", sops),
            ("$ANSIBLE_VAULT;1.1;AES256\n6638\n", Some("Ansible's vault")),
            ("\n-----BEGIN AGE ENCRYPTED FILE-----\nYWdl\n", Some("age")),
            ("-----BEGIN PGP MESSAGE-----\n\nhQ\n", Some("PGP")),
            ("about ENC[AES256_GCM,data:eA==]", None),
            ("password: $ANSIBLE_VAULT", None),
            ("sops: nothing\n", None),
            ("", None),
        ];
        for (text, whose) in table {
            let said = told(text);
            let expected = whose.map(|whose| format!("is still encrypted by {whose}; hint: "));
            assert_eq!(said.is_some(), expected.is_some(), "{text}");
            assert!(said.unwrap_or_default().starts_with(&expected.unwrap_or_default()), "{text}: {said:?}");
        }
    }
}
