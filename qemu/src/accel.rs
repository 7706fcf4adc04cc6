//! Whether KVM runs a guest here, found out by running one.
//!
//! `/dev/kvm` may exist and be of no use: nested virtualisation that refuses, hangs, crawls, or has the kernel take the
//! place of the processor, which stops at what it does not know. A boot sector that leaves through QEMU's
//! `isa-debug-exit` device has to come back in time.

use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::host::Scratch;
use crate::tools::Tools;

/// What executes the machine's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// The processor, through /dev/kvm.
    Kvm,
    /// QEMU's translator: works everywhere, several times slower.
    Tcg,
}

/// All that the translator can do, but what costs it more than it gives: a fifth level of page tables, state to save at each
/// switch that nobody uses, guards around each access to user memory, and copies of strings, which kernel and libraries take
/// for the fastest and which it does byte by byte. A box is ready a tenth earlier. AVX stays: images ask for it.
const EMULATED: &str = "max,la57=off,mpx=off,pku=off,smap=off,smep=off,umip=off,erms=off,fsrm=off";

/// Working KVM needs about 0.3 s for this, nested KVM less than one. What takes longer for firmware and some
/// thousand instructions will not boot a kernel in reasonable time.
const KVM_WITHIN: Duration = Duration::from_secs(2);

/// `isa-debug-exit` ends QEMU with `(value << 1) | 1`.
const EXIT_CODE: i32 = (0x10 << 1) | 1;

/// The boot sector, at 0x7c00: what a kernel does first. Page tables, 64-bit mode, a thousand instructions that leave the
/// guest, two of the floating-point unit that KVM's own emulation lacks, and many that only a processor runs in time;
/// then out through the debug exit.
#[rustfmt::skip]
const PROBE: [u8; 142] = [
    0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, // cli; ds = es = ss = 0
    0x66, 0xbf, 0x00, 0x10, 0x00, 0x00, 0x0f, 0x22, 0xdf, // edi = cr3 = 0x1000
    0xb9, 0x00, 0x18, 0xfc, 0xf3, 0xab,                   // clear 12 KiB there
    0xc7, 0x06, 0x00, 0x10, 0x03, 0x20,                   // PML4[0] -> 0x2000
    0xc7, 0x06, 0x00, 0x20, 0x03, 0x30,                   // PDPT[0] -> 0x3000
    0xc7, 0x06, 0x00, 0x30, 0x83, 0x00,                   // PD[0]: the first 2 MiB, as they are
    0x0f, 0x20, 0xe0, 0x0c, 0xa0, 0x0f, 0x22, 0xe0,       // cr4 |= PAE | PGE
    0x66, 0xb9, 0x80, 0x00, 0x00, 0xc0,                   // ecx = IA32_EFER
    0x0f, 0x32, 0x80, 0xcc, 0x01, 0x0f, 0x30,             // rdmsr; |= LME; wrmsr
    0x0f, 0x20, 0xc0, 0x66, 0x0d, 0x01, 0x00, 0x00, 0x80, 0x0f, 0x22, 0xc0, // cr0 |= PG | PE
    0x0f, 0x01, 0x16, 0x88, 0x7c,                         // lgdt [0x7c88]
    0xea, 0x55, 0x7c, 0x08, 0x00,                         // jmp 8:0x7c55, 64-bit from here
    0xbe, 0xe8, 0x03, 0x00, 0x00,                         // mov esi, 1000
    0x31, 0xc0, 0x0f, 0xa2, 0xff, 0xce, 0x75, 0xf8,       // cpuid(0) so often
    0xdb, 0xe3, 0x9b,                                     // fninit; fwait
    0xb9, 0x80, 0xf0, 0xfa, 0x02, 0xff, 0xc9, 0x75, 0xfc, // fifty million times: dec ecx; jnz
    0x66, 0xba, 0xf4, 0x00, 0xb0, 0x10, 0xee, 0xf4,       // out 0xf4, 0x10; hlt
    0x66, 0x90,                                           // filled up to 8 bytes
    0, 0, 0, 0, 0, 0, 0, 0,                               // the descriptor table, at 0x7c78
    0, 0, 0, 0, 0, 0x9a, 0x20, 0,                         // 8: 64-bit code
    0x0f, 0x00, 0x78, 0x7c, 0x00, 0x00,                   // its length - 1 and address
];

/// What a verdict is valid for, and the verdict; as JSON in the cache file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Verdict {
    host: String,
    accel: Accel,
}

impl Accel {
    /// KVM if it runs a guest, else software emulation. Probed once per process.
    pub fn detect(tools: &Tools) -> Self {
        static DETECTED: OnceLock<Accel> = OnceLock::new();
        *DETECTED.get_or_init(|| probe(tools))
    }

    /// As [`Accel::detect`], but the verdict of an earlier process is believed: it is kept in the file
    /// `cache`, and made anew when the host's kernel or processor, the access to /dev/kvm or what is tried is another.
    pub fn detect_cached(tools: &Tools, cache: &Path) -> Self {
        let host = host_key();
        let known = fs_err::read(cache).ok().and_then(|text| serde_json::from_slice::<Verdict>(&text).ok());
        if let Some(verdict) = known.filter(|verdict| verdict.host == host) {
            return verdict.accel;
        }
        let accel = Self::detect(tools);
        if let Err(error) = write_verdict(cache, &Verdict { host, accel }) {
            log::debug!("the verdict on acceleration is not kept: {error}");
        }
        accel
    }

    /// Runs the boot sector: how long that took, `None` if it did not come back as it should in time.
    pub fn boots(self, tools: &Tools, within: Duration) -> io::Result<Option<Duration>> {
        let scratch = Scratch::new(&std::env::temp_dir())?;
        let image = scratch.join("probe.img");
        fs_err::write(&image, boot_sector())?;
        let drive = format!("if=floppy,format=raw,file={}", image.to_string_lossy().replace(',', ",,"));
        let device = "isa-debug-exit,iobase=0xf4,iosize=1";
        let rest = format!("-nodefaults -no-user-config -machine pc -m 16 -display none -device {device} -boot a");
        let rest = rest.split(' ').chain(["-drive", &drive]);
        let arguments = self.argv().into_iter().chain(rest).map(str::to_owned);
        let began = Instant::now();
        let outcome = tools.qemu(arguments).outcome(within)?;
        Ok(outcome.filter(|(status, _)| status.code() == Some(EXIT_CODE)).map(|_| began.elapsed()))
    }

    /// QEMU's options for it.
    pub(crate) fn argv(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", EMULATED],
        }
    }
}

impl std::fmt::Display for Accel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kvm => "KVM",
            Self::Tcg => "software emulation",
        })
    }
}

fn probe(tools: &Tools) -> Accel {
    if !kvm_opens() {
        log::debug!("/dev/kvm does not open: software emulation");
        return Accel::Tcg;
    }
    match Accel::Kvm.boots(tools, KVM_WITHIN) {
        Ok(Some(took)) => {
            log::debug!("a guest ran with KVM in {took:.1?}");
            Accel::Kvm
        }
        Ok(None) => {
            log::info!("/dev/kvm is there but did not run a guest within {KVM_WITHIN:?}: software emulation");
            Accel::Tcg
        }
        Err(error) => {
            log::warn!("KVM could not be tried, software emulation is used: {error}");
            Accel::Tcg
        }
    }
}

fn boot_sector() -> [u8; 512] {
    let mut sector = [0; 512];
    sector[..PROBE.len()].copy_from_slice(&PROBE);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

fn kvm_opens() -> bool {
    fs_err::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok()
}

/// What a verdict depends on: kernel, processor, access to KVM, and what is tried.
fn host_key() -> String {
    let kernel = rustix::system::uname();
    let (release, version) = (kernel.release().to_string_lossy(), kernel.version().to_string_lossy());
    let processor = processor_key(&fs_err::read_to_string("/proc/cpuinfo").unwrap_or_default());
    let (access, probe) = (if kvm_opens() { "opens" } else { "closed" }, checksum(&boot_sector()));
    format!("{release} {version}, {processor}, kvm {access}, probe {probe:08x}")
}

/// The first processor that /proc/cpuinfo lists: make, model, and what it can do. Its speed changes by itself.
fn processor_key(cpuinfo: &str) -> String {
    let value = |key: &str| {
        let named = |line: &&str| line.split(':').next().is_some_and(|name| name.trim() == key);
        cpuinfo.lines().find(named).and_then(|line| line.split_once(':')).map_or("?", |(_, value)| value.trim())
    };
    let identity = ["vendor_id", "cpu family", "model", "stepping"].map(value).join("/");
    format!("processor {identity}, flags {:08x}", checksum(value("flags").as_bytes()))
}

/// Tells two of these apart, nothing more.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum: u32, byte| sum.rotate_left(1) ^ u32::from(*byte))
}

/// Whole or not at all: several processes may write at once.
fn write_verdict(cache: &Path, verdict: &Verdict) -> io::Result<()> {
    let dir = cache.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs_err::create_dir_all(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    serde_json::to_writer(&mut file, verdict)?;
    file.persist(cache).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::processor_key;

    const CPUINFO: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\
                           model name\t: Some Processor\nstepping\t: 8\ncpu MHz\t\t: 2699.998\nflags\t\t: fpu vme de\n\n\
                           processor\t: 1\nvendor_id\t: other\n";

    #[test]
    fn a_processor_is_another_by_model_or_abilities_and_not_by_its_speed() {
        let key = processor_key(CPUINFO);
        assert!(key.starts_with("processor GenuineIntel/6/143/8, flags "), "{key}");
        assert_eq!(processor_key(&CPUINFO.replace("2699.998", "800.000")), key);
        assert_eq!(processor_key(&CPUINFO.replace(": other", ": yet another")), key, "the first stands for all");
        assert_ne!(processor_key(&CPUINFO.replace(": 143", ": 85")), key);
        assert_ne!(processor_key(&CPUINFO.replace("fpu vme", "fpu")), key);
        assert_ne!(processor_key(""), key);
    }
}
