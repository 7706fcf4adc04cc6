//! The newtypes of a valid definition. Each reads its text form and says what is wrong with it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use agent_api::console::NoConsole;
use agent_api::image::ImageName;
use agent_api::net::{Cidr, InterfaceAddress};
use serde::{Serialize, Serializer};

/// Why a text is not a value: what was expected, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}\nhint: {hint}")]
pub struct Invalid {
    /// The form that is expected.
    pub expected: String,
    /// What to write instead.
    pub hint: String,
}

impl Invalid {
    fn new(expected: &str, hint: impl Into<String>) -> Self {
        Self { expected: expected.to_owned(), hint: hint.into() }
    }
}

/// Serializes through `Display`: the text form is the form in plans and snapshots.
macro_rules! serialize_as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

serialize_as_text!(Name, Version, KubernetesVersion, ByteSize, Ipv4Network, ImageReference, SecretReference, Console);

/// A DNS-1123 label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let expected = "a DNS label (a-z, 0-9 and `-` inside, at most 63)";
        if text.len() > 63 {
            return Err(Invalid::new(expected, format!("shorten it by {} characters", text.len() - 63)));
        }
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-') {
            return Ok(Self(text.to_owned()));
        }
        let near: String =
            text.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let near = near.trim_matches('-');
        Err(Invalid::new(
            expected,
            if near.is_empty() { "for example `edge`".to_owned() } else { format!("for example `{near}`") },
        ))
    }
}

/// A semantic version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(semver::Version);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Version {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let expected = "a semantic version of three numbers, such as `1.4.0` or `1.4.0-rc.1`";
        semver::Version::parse(text).map(Self).map_err(|_| {
            let bare = text.trim_start_matches(['v', 'V']);
            let padded = match bare.split('.').count() {
                1 => format!("{bare}.0.0"),
                2 => format!("{bare}.0"),
                _ => bare.to_owned(),
            };
            let near = if semver::Version::parse(&padded).is_ok() { padded } else { "1.0.0".to_owned() };
            Invalid::new(expected, format!("write `{near}`"))
        })
    }
}

/// A Kubernetes release, written with a leading `v`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubernetesVersion(semver::Version);

impl KubernetesVersion {
    /// The second number.
    pub fn minor(&self) -> u64 {
        self.0.minor
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl FromStr for KubernetesVersion {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let expected = "a Kubernetes release such as `v1.36.4`";
        let bare = text.strip_prefix('v').unwrap_or(text);
        match semver::Version::parse(bare) {
            Ok(version) if text.starts_with('v') => Ok(Self(version)),
            Ok(_) => Err(Invalid::new(expected, format!("write `v{bare}`"))),
            Err(_) if bare.splitn(3, '.').filter(|part| part.parse::<f64>().is_ok()).count() == 3 => {
                Err(Invalid::new(expected, "write the numbers without zeros in front, and none that is that large"))
            }
            Err(_) => Err(Invalid::new(expected, "give all three numbers after a `v`")),
        }
    }
}

/// A number of bytes, written with a unit: `350MiB`, `28GiB`, `32GB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

/// Units, largest first of each family.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl ByteSize {
    /// From mebibytes.
    pub const fn mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// From bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing is a multiple of every unit.
        let whole = UNITS.iter().filter(|(_, unit)| self.0 > 0 && self.0.is_multiple_of(*unit));
        let (name, unit) = whole.min_by_key(|(_, unit)| self.0 / unit).copied().unwrap_or(("B", 1));
        write!(f, "{}{name}", self.0 / unit)
    }
}

impl FromStr for ByteSize {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let expected = "a whole number of bytes with a unit, such as `350MiB` or `28GiB`";
        let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(digits_end);
        let unit = unit.trim_start();
        let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(Invalid::new(expected, unit_hint(digits, unit)));
        };
        if digits.is_empty() {
            return Err(Invalid::new(expected, "begin with a whole number"));
        }
        // All of them are digits: what is no number is too large for one.
        let bytes = digits.parse().ok().and_then(|number: u64| number.checked_mul(*factor));
        let bytes = bytes.filter(|bytes| i64::try_from(*bytes).is_ok());
        bytes.map(Self).ok_or_else(|| Invalid::new("a size that a disk can have", "give a smaller size"))
    }
}

fn unit_hint(digits: &str, unit: &str) -> String {
    let near = match unit.to_ascii_lowercase().as_str() {
        "k" | "ki" | "kib" => "KiB",
        "m" | "mi" | "mib" | "mb" => "MiB",
        "g" | "gi" | "gib" | "gb" => "GiB",
        "t" | "ti" | "tib" | "tb" => "TiB",
        _ => return "units are KiB, MiB, GiB, TiB (1024) and kB, MB, GB, TB (1000); no fractions".to_owned(),
    };
    if digits.is_empty() { "begin with a whole number".to_owned() } else { format!("write `{digits}{near}`") }
}

/// Serializes a duration as seconds with a unit: `90s`.
#[expect(clippy::ref_option, reason = "serde hands the field over by reference")]
pub(super) fn duration_as_text<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| format!("{}s", duration.as_secs_f64())).serialize(serializer)
}

/// Reads a duration: numbers with `ms`, `s`, `m` or `h`, such as `90s` or `1m30s`.
pub fn parse_duration(text: &str) -> Result<Duration, Invalid> {
    let expected = "a duration such as `60s` or `1m30s`";
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() || text.is_empty() {
        let digits_end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, tail) = rest.split_at(digits_end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, after) = tail.split_at(unit_end);
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "" if !digits.is_empty() => return Err(Invalid::new(expected, format!("write `{digits}s` for seconds"))),
            _ => return Err(Invalid::new(expected, "units are `ms`, `s`, `m` and `h`; no fractions")),
        };
        if digits.is_empty() {
            return Err(Invalid::new(expected, "begin with a whole number"));
        }
        let part = digits.parse().ok().and_then(|number: u64| number.checked_mul(millis)).map(Duration::from_millis);
        let sum = part.and_then(|part| total.checked_add(part));
        total = sum.ok_or_else(|| Invalid::new(expected, "give a shorter duration"))?;
        rest = after;
    }
    Ok(total)
}

/// An IPv4 network: no bit behind the prefix is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4Network {
    address: Ipv4Addr,
    prefix: u8,
}

impl Ipv4Network {
    fn cidr(self) -> Cidr {
        Cidr { address: self.address.into(), prefix: self.prefix }
    }

    /// Whether the two networks share an address.
    pub fn overlaps(self, other: Self) -> bool {
        self.cidr().overlaps(other.cidr())
    }

    /// Whether the address lies in the network.
    pub fn contains(self, address: impl Into<IpAddr>) -> bool {
        self.cidr().contains(address.into())
    }

    /// What else than hosts its addresses are for, if so.
    pub fn reserved(self) -> Option<&'static str> {
        match self.address.octets() {
            [0, ..] => Some("the sender itself"),
            [127, ..] => Some("loopback"),
            [169, 254, ..] => Some("link-local addresses"),
            [224..=255, ..] => Some("multicast"),
            _ => None,
        }
    }

    /// First address.
    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    /// Length of the network part.
    pub fn prefix(self) -> u8 {
        self.prefix
    }
}

impl From<InterfaceAddress> for Ipv4Network {
    /// The network that the interface is in.
    fn from(own: InterfaceAddress) -> Self {
        Self { address: masked(own.address, own.prefix), prefix: own.prefix }
    }
}

fn masked(address: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    match (Cidr { address: address.into(), prefix }.network().address) {
        IpAddr::V4(network) => network,
        IpAddr::V6(_) => unreachable!("the network of an IPv4 address is one of IPv4"),
    }
}

impl fmt::Display for Ipv4Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Ipv4Network {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let expected = "an IPv4 network such as `10.244.0.0/16`";
        let Some((address, prefix)) = text.split_once('/') else {
            return Err(Invalid::new(expected, "add the prefix length, such as `/16`"));
        };
        if address.contains(':') {
            return Err(Invalid::new(
                expected,
                "IPv6 networks are not supported yet by this version; give an IPv4 one",
            ));
        }
        let address: Ipv4Addr =
            address.parse().map_err(|_| Invalid::new(expected, "the address needs four numbers from 0 to 255"))?;
        let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32);
        let prefix: u8 = prefix.ok_or_else(|| Invalid::new(expected, "the prefix length is a number from 0 to 32"))?;
        let network = masked(address, prefix);
        if network != address {
            return Err(Invalid::new(expected, format!("bits beyond the prefix are set: write `{network}/{prefix}`")));
        }
        Ok(Self { address, prefix })
    }
}

/// A whole reference of a container image: registry, repository, and a tag or a digest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageReference(ImageName);

impl ImageReference {
    /// Its parts.
    pub fn name(&self) -> &ImageName {
        &self.0
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ImageReference {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let expected = "a whole image reference such as `quay.io/org/app:1.2`";
        let bad = |hint: String| Err(Invalid::new(expected, hint));
        if let Some(rest) = text.split_once("://").map(|(_, rest)| rest) {
            return bad(format!("leave the scheme away: `{rest}`"));
        }
        let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
        if let Some(digest) = digest {
            let hex = digest.strip_prefix("sha256:").unwrap_or_default();
            if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
                return bad("a digest is `@sha256:` and 64 lower-case hex digits".to_owned());
            }
        }
        let Some((host, path)) =
            name.split_once('/').filter(|(host, _)| host.contains(['.', ':']) || *host == "localhost")
        else {
            return bad(format!("name the registry too, such as `registry.example/{text}`"));
        };
        let (repository, tag) = path.rsplit_once(':').map_or((path, None), |(path, tag)| (path, Some(tag)));
        let part = |part: &str| {
            let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
            part.bytes().all(inner) && part.starts_with(|c: char| c.is_ascii_alphanumeric())
        };
        if !repository.split('/').all(part) {
            return bad("a repository has lower-case letters, digits, `-`, `_`, `.` and `/` only".to_owned());
        }
        let host_good = host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b':'));
        if !host_good {
            return bad("a registry is a host name, with `:port` if it needs one".to_owned());
        }
        match tag {
            Some(tag) if !good_tag(tag) => bad("a tag has letters, digits, `_`, `.` and `-`, at most 128".to_owned()),
            None if digest.is_none() => bad(format!("add a tag, such as `{text}:1.0`")),
            Some(_) | None => text.parse().map(Self).map_err(|_| Invalid::new(expected, "look for a typing error")),
        }
    }
}

fn good_tag(tag: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    (1..=128).contains(&tag.len()) && tag.bytes().all(inner) && !tag.starts_with(['.', '-'])
}

/// Where a secret is: never the secret itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretReference {
    /// A file, relative to the definition.
    File(PathBuf),
    /// A variable of the environment.
    Env(String),
}

impl fmt::Display for SecretReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Env(name) => write!(f, "env:{name}"),
        }
    }
}

impl FromStr for SecretReference {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let expected = "a reference `file:PATH` or `env:NAME`";
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(PathBuf::from(path))),
            Some(("env", name)) if is_variable(name) => Ok(Self::Env(name.to_owned())),
            Some(("env", _)) => Err(Invalid::new(expected, "a variable has letters, digits and `_`")),
            _ => Err(Invalid::new(
                expected,
                "a secret never stands in a definition: put it in a file and name that file",
            )),
        }
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// A console of the kernel: `tty0`, `ttyS0`, `ttyS1,115200`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Console(agent_api::console::Console);

impl Console {
    /// The device without its options.
    pub fn device(&self) -> String {
        self.0.device()
    }
}

impl fmt::Display for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Console {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let expected = "a console such as `tty0`, `ttyS0` or `ttyS1,115200`";
        text.parse().map(Self).map_err(|error: NoConsole| Invalid::new(expected, error.hint))
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;
    use std::time::Duration;

    use proptest::prelude::{any, proptest};
    use rstest::rstest;

    use super::{ByteSize, ImageReference, Ipv4Network, SecretReference, parse_duration};

    #[rstest]
    #[case("350MiB", 350 << 20)]
    #[case("28 GiB", 28 << 30)]
    #[case("4GB", 4_000_000_000)]
    #[case("512B", 512)]
    fn a_size_is_a_number_with_a_unit(#[case] text: &str, #[case] bytes: u64) {
        assert_eq!(ByteSize::from_str(text).map(ByteSize::bytes), Ok(bytes));
    }

    #[rstest]
    #[case("28G", "write `28GiB`")]
    #[case("16gb", "write `16GiB`")]
    #[case("GiB", "begin with a whole number")]
    #[case("-1GiB", "units are KiB, MiB, GiB, TiB (1024) and kB, MB, GB, TB (1000); no fractions")]
    #[case("9223372036854775808B", "give a smaller size")]
    #[case("99999999999GiB", "give a smaller size")]
    #[case("99999999999999999999999GiB", "give a smaller size")]
    fn a_wrong_size_comes_with_the_right_one(#[case] text: &str, #[case] hint: &str) {
        assert_eq!(ByteSize::from_str(text).map_err(|invalid| invalid.hint), Err(hint.to_owned()));
    }

    #[rstest]
    #[case(0, "0B")]
    #[case(1 << 40, "1TiB")]
    #[case(9_223_372_036_854_775_807, "9223372036854775807B")]
    fn a_size_is_shown_in_its_largest_whole_unit(#[case] bytes: u64, #[case] shown: &str) {
        assert_eq!(ByteSize::from_bytes(bytes).to_string(), shown);
    }

    #[rstest]
    #[case("s", "begin with a whole number")]
    #[case("99999999999999999h", "give a shorter duration")]
    #[case("99999999999999999999999s", "give a shorter duration")]
    fn a_wrong_duration_comes_with_what_to_do(#[case] text: &str, #[case] hint: &str) {
        assert_eq!(parse_duration(text).map_err(|invalid| invalid.hint), Err(hint.to_owned()));
    }

    #[rstest]
    #[case("60s", 60_000)]
    #[case("1m30s", 90_000)]
    #[case("2h", 7_200_000)]
    #[case("250ms", 250)]
    fn a_duration_is_a_sum_of_numbers_with_units(#[case] text: &str, #[case] millis: u64) {
        assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)));
    }

    #[rstest]
    #[case("")]
    #[case("s")]
    #[case("60")]
    #[case("1.5m")]
    #[case("99999999999999999h")]
    fn other_texts_are_no_durations(#[case] text: &str) {
        assert!(parse_duration(text).is_err());
    }

    #[rstest]
    #[case("10.0.0.0/8", "10.96.0.0/12", true)]
    #[case("10.96.0.0/12", "10.0.0.0/8", true)]
    #[case("10.244.0.0/16", "10.96.0.0/12", false)]
    #[case("0.0.0.0/0", "192.168.0.0/24", true)]
    fn networks_overlap_when_one_is_inside_the_other(
        #[case] one: Ipv4Network,
        #[case] other: Ipv4Network,
        #[case] overlap: bool,
    ) {
        assert_eq!(one.overlaps(other), overlap);
    }

    #[rstest]
    #[case("quay.io/org/app:1.2")]
    #[case("localhost:5000/app:dev")]
    #[case("registry.k8s.io/pause@sha256:0000000000000000000000000000000000000000000000000000000000000000")]
    fn whole_references_are_taken(#[case] text: &str) {
        assert_eq!(ImageReference::from_str(text).map(|reference| reference.to_string()), Ok(text.to_owned()));
    }

    #[rstest]
    #[case("app:1.2")]
    #[case("quay.io/org/app")]
    #[case("quay.io/org/app:")]
    #[case("quay.io//app:1")]
    #[case("quay.io/app@sha256:12")]
    #[case("")]
    fn other_references_are_refused(#[case] text: &str) {
        assert!(ImageReference::from_str(text).is_err());
    }

    #[rstest]
    #[case("file:release.key", true)]
    #[case("env:RELEASE_KEY", true)]
    #[case("env:1KEY", false)]
    #[case("file:", false)]
    #[case("hunter2", false)]
    fn a_secret_is_only_ever_referred_to(#[case] text: &str, #[case] good: bool) {
        assert_eq!(SecretReference::from_str(text).is_ok(), good);
    }

    proptest! {
        #[test]
        fn a_size_reads_back_as_it_is_shown(bytes in 0..i64::MAX.unsigned_abs()) {
            let shown = ByteSize::from_bytes(bytes).to_string();
            assert_eq!(ByteSize::from_str(&shown).map(ByteSize::bytes), Ok(bytes));
        }

        #[test]
        fn a_network_reads_back_as_it_is_shown(address in any::<u32>(), prefix in 0..=32_u8) {
            let network = super::masked(address.into(), prefix);
            let text = format!("{network}/{prefix}");
            assert_eq!(Ipv4Network::from_str(&text).map(|network| network.to_string()), Ok(text));
        }
    }
}
