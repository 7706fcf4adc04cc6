//! An appliance with much content: what it weighs, how soon it is built again, and that no flipped byte goes unnoticed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use agent_api::boot::CONTENT_STEP;
use agent_api::bundle::blobs_of;
use agent_api::events::State;
use agent_api::release::{Blob, Digest, Release};
use foothold::medium::Medium;
use foothold::medium::check;
use foothold::medium::keys::Keys;
use foothold::problems::Flaw;
use foothold_tests::registry::Registry;
use foothold_tests::{Appliance, How};
use rand::seq::IteratorRandom as _;

use super::{More, definition, recipe};

/// What people install on servers, each with what it needs.
const PACKAGES: [&str; 40] = [
    "bind9-dnsutils",
    "bridge-utils",
    "chrony",
    "conntrack",
    "curl",
    "dmidecode",
    "dosfstools",
    "ebtables",
    "ethtool",
    "gdisk",
    "haproxy",
    "htop",
    "ifenslave",
    "iperf3",
    "ipmitool",
    "ipset",
    "jq",
    "keepalived",
    "lldpd",
    "lsof",
    "lvm2",
    "mdadm",
    "multipath-tools",
    "nfs-common",
    "nftables",
    "nvme-cli",
    "open-iscsi",
    "parted",
    "pciutils",
    "rsync",
    "smartmontools",
    "socat",
    "strace",
    "tcpdump",
    "tmux",
    "usbutils",
    "vim-tiny",
    "vlan",
    "wget",
    "xfsprogs",
];
/// Bytes that are flipped.
const FLIPS: usize = 100;
/// Bytes of a sample that tell where on the medium a blob lies; files begin at sectors.
const SAMPLE: usize = 4096;
const SECTOR: usize = 512;

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test airgap -- --ignored`"]
fn a_grown_appliance_has_each_blob_once_and_each_flipped_byte_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let registry = Registry::start();
    let references = registry.push_six();
    let os_images = [recipe("debian-node"), recipe("rescue")];
    let os_images: Vec<&str> = os_images.iter().map(String::as_str).collect();
    let more = More { os_images: &os_images, packages: &PACKAGES, outputs: "{ format: raw }, { format: qcow2 }" };
    let definition = definition(dir.path(), &registry, &references, more);
    let build = || {
        let begun = Instant::now();
        (Appliance::of(&definition), begun.elapsed())
    };
    let ((_, first), (appliance, again)) = (build(), build());
    drop(registry);

    let image = appliance.image("raw");
    let release = release_of(&image);
    let unique: u64 = blobs_of(&release).iter().map(|blob| blob.size).sum();
    let bytes = |path: &Path| fs_err::metadata(path).expect("an image").len();
    // ESP and SITE have a fixed size, whatever is in them.
    let taken = fs_err::metadata(&image).expect("an image").blocks() * 512;
    let qcow2 = bytes(&appliance.image("qcow2"));
    tell(&format!(
        "built in {:.1} s, again in {:.1} s\n{}unique blobs {unique}; raw {}, with {taken} that are not free: {:.4}; \
         qcow2 {qcow2}: {:.4}",
        first.as_secs_f64(),
        again.as_secs_f64(),
        sizes(&release),
        bytes(&image),
        ratio(taken, unique),
        ratio(qcow2, unique),
    ));
    assert!(ratio(taken.max(qcow2), unique) <= 1.05, "the medium has more than each blob once");

    let (damaged, flipped) = flip(&appliance, &image, &release, dir.path());
    let found = problems(&damaged);
    let named: BTreeSet<String> = found.iter().map(|problem| problem.place.replace("blob ", "")).collect();
    assert_eq!(named, flipped, "{found:#?}");
    assert!(found.iter().all(|problem| !problem.needed_by.is_empty()), "{found:#?}");

    let mut machine = appliance.boot(How { format: "raw", image: Some(&damaged), ..How::default() });
    let (mut ready, mut left) = (false, flipped);
    machine.until("the box to be ready and all damage to be told", |event| {
        ready |= event.is_ready();
        let is_told = event.phase == "medium" && event.step == CONTENT_STEP && event.state == State::Failed;
        let cause = event.text("cause").filter(|_| is_told).unwrap_or_default();
        left.retain(|digest| !cause.contains(digest));
        ready && left.is_empty()
    });
}

fn release_of(image: &Path) -> Release {
    let medium = Medium::open(image).unwrap_or_else(|error| panic!("{error}"));
    medium.releases().expect("releases").first().expect("a release").release().expect("a manifest")
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn ratio(whole: u64, part: u64) -> f64 {
    whole as f64 / part as f64
}

/// Bytes of each kind of content, each blob once.
fn sizes(release: &Release) -> String {
    let layers = release.layers.iter().map(|layer| ("layers".to_owned(), layer.digest.clone(), layer.size));
    let images = release.images.iter().flat_map(|image| image.blobs.iter());
    let images = images.map(|blob| ("container images".to_owned(), blob.digest.clone(), blob.size));
    let files = release.content.iter().map(|file| (format!("{:?}", file.kind), file.digest.clone(), file.size));
    let (mut sizes, mut seen) = (BTreeMap::<String, (usize, u64)>::new(), BTreeSet::new());
    for (kind, digest, size) in layers.chain(images).chain(files) {
        if seen.insert(digest) {
            let all = sizes.entry(kind).or_default();
            *all = (all.0 + 1, all.1 + size);
        }
    }
    sizes.iter().fold(String::new(), |mut text, (kind, (count, size))| {
        let _ = writeln!(text, "{size:>12} bytes in {count:>4} blobs: {kind}");
        text
    })
}

#[expect(clippy::print_stderr, reason = "figures for people")]
fn tell(text: &str) {
    eprintln!("{text}");
}

/// What `foothold verify` finds.
fn problems(image: &Path) -> Vec<Flaw> {
    let medium = Medium::open(image).unwrap_or_else(|error| panic!("{error}"));
    let keys = Keys::of_user(None).expect("keys");
    check::check(&medium, &keys, &mut |_, _| Ok(())).expect("checked").problems
}

/// A copy of the image with bytes flipped at random places of its images' and files' blobs, and which blobs these are.
fn flip(appliance: &Appliance, image: &Path, release: &Release, dir: &Path) -> (PathBuf, BTreeSet<String>) {
    let damaged = dir.join("damaged.raw");
    fs_err::copy(image, &damaged).expect("copied");
    let file = fs_err::OpenOptions::new().write(true).open(&damaged).expect("opened");
    let sectors = Sectors::of(fs_err::read(image).expect("the image"));
    let images = release.images.iter().flat_map(|image| image.blobs.iter().cloned());
    let files = release.content.iter().filter_map(agent_api::release::ContentFile::blob);
    let blobs: BTreeMap<Digest, Blob> = images.chain(files).map(|blob| (blob.digest.clone(), blob)).collect();
    let (mut flipped, mut done) = (BTreeSet::new(), BTreeSet::new());
    while done.len() < FLIPS {
        let blob = blobs.values().choose(&mut rand::rng()).expect("a blob");
        let at = usize::try_from(rand::random::<u64>() % blob.size.max(1)).expect("it fits");
        let start = at / SAMPLE * SAMPLE;
        let mut sample = vec![0; SAMPLE.min(usize::try_from(blob.size).expect("it fits") - start)];
        let path = appliance.builder().cache.blob_path(&blob.digest);
        fs_err::File::open(path).expect("the blob").file().read_exact_at(&mut sample, start as u64).expect("read");
        // What other files have as well could be theirs.
        let Some(found) = sectors.only(&sample) else { continue };
        let place = found + at - start;
        if done.insert(place) {
            file.file().write_all_at(&[sample[at - start] ^ 0x40], place as u64).expect("flipped");
            flipped.insert(blob.digest.to_string());
        }
    }
    tell(&format!("{} bytes flipped in {} blobs of {}", done.len(), flipped.len(), blobs.len()));
    (damaged, flipped)
}

/// Where on the medium a sector's first bytes are, if they are nowhere else.
struct Sectors {
    image: Vec<u8>,
    first: HashMap<[u8; 32], Option<usize>>,
}

impl Sectors {
    fn of(image: Vec<u8>) -> Self {
        let mut first = HashMap::new();
        for at in (0..image.len()).step_by(SECTOR) {
            let begins: [u8; 32] = image[at..at + 32].try_into().expect("32 bytes");
            first.entry(begins).and_modify(|found| *found = None).or_insert(Some(at));
        }
        Self { image, first }
    }

    fn only(&self, sample: &[u8]) -> Option<usize> {
        let at = (*self.first.get(sample.get(..32)?)?)?;
        (self.image.get(at..at + sample.len())? == sample).then_some(at)
    }
}
