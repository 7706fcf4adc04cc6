//! Texts of Secrets: as they are, or unpacked, or the reason why they are not text.

use std::io::Read as _;

use agent_api::encrypted;
use flate2::read::MultiGzDecoder;
use k8s_openapi::ByteString;

/// The most that is unpacked: more than a config drive holds.
const MOST: u64 = 64 * 1024 * 1024;

/// A text out of the bytes of a Secret. cloud-init unpacks gzip by itself; a config drive is told to Ironic in JSON,
/// which holds texts only, so that it is unpacked here.
///
/// # Errors
/// What the bytes are, in words that follow their name.
pub fn text(bytes: &ByteString) -> Result<String, String> {
    let bytes = bytes.0.as_slice();
    let mut unpacked = Vec::new();
    let plain = if bytes.starts_with(b"\x1f\x8b") {
        let mut reader = MultiGzDecoder::new(bytes).take(MOST + 1);
        reader
            .read_to_end(&mut unpacked)
            .map_err(|error| format!("is a gzip archive that cannot be unpacked: {error}"))?;
        if unpacked.len() as u64 > MOST {
            return Err(format!("is a gzip archive of more than {} MiB", MOST / 1024 / 1024));
        }
        unpacked.as_slice()
    } else {
        bytes
    };
    let text = std::str::from_utf8(plain).map_err(|_| {
        let kind = kind(plain);
        format!("is {kind}, and a config drive is told to Ironic as a text; hint: give the text itself, or gzip of it")
    })?;
    match encrypted::told(text) {
        Some(told) => Err(told.to_owned()),
        None => Ok(text.to_owned()),
    }
}

/// What bytes are that are no text.
fn kind(bytes: &[u8]) -> &'static str {
    let known: [(&[u8], &str); 9] = [
        (b"\xfd7zXZ\0", "an xz archive"),
        (b"\x28\xb5\x2f\xfd", "a zstd archive"),
        (b"BZh", "a bzip2 archive"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\x04\x22\x4d\x18", "an lz4 archive"),
        (b"\x7fELF", "a program"),
        (b"\xff\xfe", "a text in UTF-16"),
        (b"\xfe\xff", "a text in UTF-16"),
        (b"MZ", "a program"),
    ];
    known.into_iter().find(|(start, _)| bytes.starts_with(start)).map_or("binary data", |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use k8s_openapi::ByteString;
    use rstest::rstest;

    use super::text;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut writer = GzEncoder::new(Vec::new(), Compression::default());
        writer.write_all(bytes).expect("packed");
        writer.finish().expect("packed")
    }

    #[test]
    fn texts_are_as_they_are_and_gzip_is_unpacked() {
        let config = "#cloud-config\nhostname: ä\n";
        assert_eq!(text(&ByteString(config.into())).as_deref(), Ok(config));
        assert_eq!(text(&ByteString(gzip(config.as_bytes()))).as_deref(), Ok(config));
        let twice = [gzip(b"a: 1\n"), gzip(b"b: 2\n")].concat();
        assert_eq!(text(&ByteString(twice)).as_deref(), Ok("a: 1\nb: 2\n"), "members follow one another");
        assert_eq!(text(&ByteString(Vec::new())).as_deref(), Ok(""));
        let told = "a note about ENC[AES256_GCM,data:x] in a text";
        assert_eq!(text(&ByteString(told.into())).as_deref(), Ok(told));
    }

    #[rstest]
    #[case::xz(b"\xfd7zXZ\0\0".to_vec(), "is an xz archive, ")]
    #[case::zstd(b"\x28\xb5\x2f\xfd\xff".to_vec(), "is a zstd archive, ")]
    #[case::utf_16(b"\xff\xfe#\0".to_vec(), "is a text in UTF-16, ")]
    #[case::noise(vec![0x80, 0x81], "is binary data, ")]
    #[case::packed_noise(gzip(&[0x80, 0x81]), "is binary data, ")]
    #[case::cut_off(gzip(b"#cloud-config\n")[..12].to_vec(), "is a gzip archive that cannot be unpacked: ")]
    #[case::a_value_of_sops(b"ENC[AES256_GCM,data:eA==,iv:x,type:str]".to_vec(), "is still encrypted by sops; hint: ")]
    #[case::of_ansible(b"$ANSIBLE_VAULT;1.1;AES256\n6638\n".to_vec(), "is still encrypted by Ansible's vault; hint: ")]
    #[case::compact_json(b"{\"a\":\"ENC[AES256_GCM,data:eA==]\",\"sops\":{}}".to_vec(), "is still encrypted by sops; hint: ")]
    #[case::a_file_of_sops(b"a: ENC[AES256_GCM,data:eA==]\nsops:\n    version: 3.9.0\n".to_vec(), "is still encrypted by sops; hint: ")]
    fn what_is_no_text_is_said(#[case] bytes: Vec<u8>, #[case] expected: &str) {
        let said = text(&ByteString(bytes)).expect_err("no text");
        assert!(said.starts_with(expected), "{said}");
    }
}
