//! Hashes of passwords, as users make them and as programs take them. Pure.

use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};

/// Base64 with or without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// How such a hash begins.
const PBKDF2: &str = "$pbkdf2-sha256$";
/// Bytes of salt and hash that Glewlwyd has room for.
const SALT: usize = 16;
const HASH: usize = 32;
/// Fewer rounds are no protection; more would stop the provider.
const ROUNDS: std::ops::RangeInclusive<u32> = 10_000..=10_000_000;
/// Costs of bcrypt that Dex takes.
const COSTS: std::ops::RangeInclusive<u32> = 10..=16;

/// A hash as Glewlwyd keeps it: `BASE64(hash, salt),ROUNDS`.
///
/// `text`: `$pbkdf2-sha256$ROUNDS$SALT$HASH` as passlib writes it, or with `i=ROUNDS` and perhaps `,l=32` as the PHC string
/// format has it.
///
/// # Errors
/// What is wrong with it, in words.
pub fn for_glewlwyd(text: &str) -> Result<String, String> {
    let expected = "expected `$pbkdf2-sha256$ROUNDS$SALT$HASH`";
    let rest = text.trim().strip_prefix(PBKDF2).ok_or_else(|| format!("is no hash of PBKDF2, {expected}"))?;
    let [rounds, salt, hash] = rest.split('$').collect::<Vec<_>>()[..] else {
        return Err(format!("has other parts, {expected}"));
    };
    let rounds = rounds.strip_prefix("i=").unwrap_or(rounds).trim_end_matches(",l=32");
    let rounds: u32 = rounds.parse().map_err(|_| format!("has no number of rounds, {expected}"))?;
    if !ROUNDS.contains(&rounds) {
        return Err(format!("has {rounds} rounds, expected {} to {}", ROUNDS.start(), ROUNDS.end()));
    }
    let bytes = |what: &str, text: &str, length: usize| {
        let found =
            LENIENT.decode(text.replace('.', "+")).map_err(|error| format!("its {what} is no base64: {error}"))?;
        if found.len() == length {
            return Ok(found);
        }
        Err(format!("its {what} has {} bytes, expected {length}", found.len()))
    };
    let (salt, hash) = (bytes("salt", salt, SALT)?, bytes("hash", hash, HASH)?);
    // Glewlwyd reads it as a text.
    if salt.contains(&0) {
        return Err("its salt has a byte that is zero, which Glewlwyd does not read; hint: make another one".to_owned());
    }
    Ok(format!("{},{rounds}", STANDARD.encode([hash, salt].concat())))
}

/// A hash as Dex takes it: that of bcrypt.
///
/// # Errors
/// What is wrong with it, in words.
pub fn for_dex(text: &str) -> Result<String, String> {
    let text = text.trim();
    let parts = text.parse::<bcrypt::HashParts>();
    let parts = parts.map_err(|_| "is no hash of bcrypt, expected `$2y$COST$...`; hint: `htpasswd -nBC 12 NAME`")?;
    if !COSTS.contains(&parts.get_cost()) {
        return Err(format!("has a cost of {}, expected {} to {}", parts.get_cost(), COSTS.start(), COSTS.end()));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{for_dex, for_glewlwyd};

    /// Made by Python's `hashlib.pbkdf2_hmac`: `secret-of-alice`, salt `0123456789abcdef`, 150000 rounds.
    const KEPT: &str = "MyWdAGeTf8t4x8vxHMsQpOxmDmksTe31GlVPaWfOhqcwMTIzNDU2Nzg5YWJjZGVm,150000";
    const BCRYPT: &str = "$2y$12$abcdefghijklmnopqrstuuz7o4z5uS3sHMOTqQ1gxlmPKh1Gl6XQy";

    #[rstest]
    #[case("$pbkdf2-sha256$150000$MDEyMzQ1Njc4OWFiY2RlZg$MyWdAGeTf8t4x8vxHMsQpOxmDmksTe31GlVPaWfOhqc")]
    #[case("$pbkdf2-sha256$i=150000$MDEyMzQ1Njc4OWFiY2RlZg$MyWdAGeTf8t4x8vxHMsQpOxmDmksTe31GlVPaWfOhqc")]
    #[case("$pbkdf2-sha256$i=150000,l=32$MDEyMzQ1Njc4OWFiY2RlZg==$MyWdAGeTf8t4x8vxHMsQpOxmDmksTe31GlVPaWfOhqc=\n")]
    fn hashes_of_pbkdf2_are_kept_as_glewlwyd_keeps_them(#[case] text: &str) {
        assert_eq!(for_glewlwyd(text).as_deref(), Ok(KEPT));
    }

    #[rstest]
    #[case("password", "is no hash of PBKDF2")]
    #[case(BCRYPT, "is no hash of PBKDF2")]
    #[case("$pbkdf2-sha256$150000$MDEy", "has other parts")]
    #[case("$pbkdf2-sha256$many$MDEy$MDEy", "has no number of rounds")]
    #[case("$pbkdf2-sha256$1000$MDEy$MDEy", "has 1000 rounds")]
    #[case("$pbkdf2-sha256$150000$MDEy$MDEy", "its salt has 3 bytes, expected 16")]
    #[case("$pbkdf2-sha256$150000$%%$MDEy", "its salt is no base64")]
    #[case(
        "$pbkdf2-sha256$150000$ADEyMzQ1Njc4OWFiY2RlZg$MyWdAGeTf8t4x8vxHMsQpOxmDmksTe31GlVPaWfOhqc",
        "a byte that is zero"
    )]
    fn what_glewlwyd_does_not_take_is_said(#[case] text: &str, #[case] words: &str) {
        let why = for_glewlwyd(text).expect_err("refused");
        assert!(why.contains(words), "{why}");
    }

    #[test]
    fn dex_takes_hashes_of_bcrypt_that_are_strong_and_not_endless() {
        assert_eq!(for_dex(&format!("{BCRYPT}\n")).as_deref(), Ok(BCRYPT));
        for (text, words) in [
            ("password", "is no hash of bcrypt"),
            ("$pbkdf2-sha256$150000$MDEy$MDEy", "is no hash of bcrypt"),
            (&BCRYPT.replace("$12$", "$04$"), "has a cost of 4"),
            (&BCRYPT.replace("$12$", "$31$"), "has a cost of 31"),
        ] {
            let why = for_dex(text).expect_err("refused");
            assert!(why.contains(words), "{why}");
        }
    }
}
