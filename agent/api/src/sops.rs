//! What sops left encrypted in a user's files: nothing of it is what it stands for.

/// How an encrypted value begins (sops, "Encrypting using AES256-GCM").
const VALUE: &str = "ENC[AES256_GCM,";

/// What is said of it, behind its name.
pub const ENCRYPTED: &str = "is still encrypted by sops; hint: decrypt it before it is applied, as by `sops --decrypt FILE | kubectl apply -f -`";

/// Whether a text is an encrypted value, or a file with such values and with how they were made.
pub fn is_encrypted(text: &str) -> bool {
    let made = |line: &str| line.starts_with("sops:") || line.trim_start().starts_with("\"sops\":");
    text.trim_start().starts_with(VALUE) || text.contains(VALUE) && text.lines().any(made)
}

#[cfg(test)]
mod tests {
    use super::is_encrypted;

    #[test]
    fn a_value_and_a_file_are_told_from_texts_about_them() {
        let table = [
            ("ENC[AES256_GCM,data:eA==,iv:aQ==,tag:dA==,type:str]", true),
            ("a: ENC[AES256_GCM,data:eA==]\nsops:\n    version: 3.9.0\n", true),
            ("{\"a\": \"ENC[AES256_GCM,data:eA==]\",\n  \"sops\": {}}", true),
            ("about ENC[AES256_GCM,data:eA==]", false),
            ("sops: nothing\n", false),
            ("", false),
        ];
        for (text, expected) in table {
            assert_eq!(is_encrypted(text), expected, "{text}");
        }
    }
}
