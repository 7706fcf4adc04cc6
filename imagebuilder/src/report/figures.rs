//! The figures of `bench`, and how they are shown.

use std::fmt;
use std::path::PathBuf;

use indicatif::HumanBytes;
use serde::{Deserialize, Serialize};

use super::outcome::lossy;

/// The machine that measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BenchHost {
    /// `kvm`, or `tcg`: software emulation.
    pub accel: String,
    /// Its processors.
    pub cpus: usize,
}

/// An image, and its starts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BenchImage {
    /// The file.
    #[serde(serialize_with = "lossy")]
    pub file: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Size of each layer, by name.
    pub layers: Vec<(String, u64)>,
    /// Bytes of all other blobs: images, content.
    pub blob_bytes: u64,
    /// First boots, in the order of the rounds.
    pub first_boot: Vec<Figures>,
    /// Boots of the same disks after a power cut.
    pub reboot: Vec<Figures>,
}

/// What one start took. Times are seconds since power-on; what the box did not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// The API server answers.
    pub api_secs: Option<f64>,
    /// The node is Ready.
    pub node_ready_secs: f64,
    /// The API server has looked through its roles.
    pub roles_secs: Option<f64>,
    /// The pods of the cluster are Ready.
    pub pods_secs: Option<f64>,
    /// `ready`.
    pub ready_secs: f64,
    /// Seconds of a processor that the machine used until then.
    pub processor_secs: f64,
    /// Memory in use at `ready`, MiB.
    #[serde(rename = "memoryUsedMiB")]
    pub memory_used_mib: u64,
    /// Seconds of a processor that other programs of the host used meanwhile.
    pub others_secs: f64,
    /// Percent of that time in which something on the host waited for a processor (pressure stall information).
    pub pressure_percent: Option<f64>,
    /// What it did while it had nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
}

/// A box that is ready and has nothing to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Idle {
    /// Percent of one processor.
    pub processor_percent: f64,
    /// Bytes that it writes to its disk in an hour.
    pub written_bytes_per_hour: u64,
}

/// A row of the table: its name, its unit, and where its value is.
type Row = (&'static str, &'static str, fn(&Figures) -> Option<f64>);

/// What is shown of a start.
#[expect(clippy::cast_precision_loss, reason = "sizes below 4 PiB")]
const ROWS: [Row; 11] = [
    ("API server answers", "s", |one| one.api_secs),
    ("node Ready", "s", |one| Some(one.node_ready_secs)),
    ("roles", "s", |one| one.roles_secs),
    ("pods Ready", "s", |one| one.pods_secs),
    ("ready", "s", |one| Some(one.ready_secs)),
    ("processor", "s", |one| Some(one.processor_secs)),
    ("memory in use", "MiB", |one| Some(one.memory_used_mib as f64)),
    ("idle processor", "%", |one| one.idle.as_ref().map(|idle| idle.processor_percent)),
    ("idle writes", "MiB/h", |one| {
        one.idle.as_ref().map(|idle| idle.written_bytes_per_hour as f64 / f64::from(1 << 20))
    }),
    ("other programs' processor", "s", |one| Some(one.others_secs)),
    ("waiting for a processor", "%", |one| one.pressure_percent),
];

/// Least, middle and most of some values; none of none.
pub fn spread(values: &mut [f64]) -> Option<[f64; 3]> {
    values.sort_by(f64::total_cmp);
    Some([*values.first()?, values[values.len() / 2], *values.last()?])
}

/// The figures as tables, without a line end behind the last line.
pub(super) fn write(f: &mut fmt::Formatter<'_>, host: &BenchHost, images: &[BenchImage]) -> fmt::Result {
    write!(f, "{} processors, {}; least, middle and most of each figure", host.cpus, host.accel)?;
    for image in images {
        write!(f, "\n\n{}  {}", image.file.display(), HumanBytes(image.bytes))?;
        for (name, bytes) in
            image.layers.iter().map(|(name, bytes)| (name.as_str(), *bytes)).chain([("other blobs", image.blob_bytes)])
        {
            write!(f, "\n  {name:<26} {:>12}", HumanBytes(bytes).to_string())?;
        }
        for (what, starts) in [("first boot", &image.first_boot), ("boot after a power cut", &image.reboot)] {
            write!(f, "\n {what}, {} times", starts.len())?;
            for (name, unit, value) in ROWS {
                let mut values: Vec<f64> = starts.iter().filter_map(value).collect();
                if let Some([least, middle, most]) = spread(&mut values) {
                    write!(f, "\n  {name:<26} {least:>8.1} {middle:>8.1} {most:>8.1} {unit}")?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{BenchHost, BenchImage, Figures, Idle, spread};
    use crate::report::Outcome;

    #[test]
    fn a_spread_is_least_middle_and_most() {
        assert_eq!(spread(&mut []), None);
        assert_eq!(spread(&mut [3.0]), Some([3.0; 3]));
        assert_eq!(spread(&mut [3.0, 1.0, 2.0]), Some([1.0, 2.0, 3.0]));
    }

    #[test]
    fn people_see_every_figure_that_there_is() {
        let start =
            |ready_secs: f64| Figures { node_ready_secs: 40.0, ready_secs, processor_secs: 90.0, ..Figures::default() };
        let idle = Some(Idle { processor_percent: 2.5, written_bytes_per_hour: 3 << 20 });
        let image = BenchImage {
            file: "out/box.qcow2".into(),
            bytes: 300 << 20,
            layers: vec![("os".into(), 100 << 20)],
            blob_bytes: 10 << 20,
            first_boot: vec![Figures { idle, ..start(60.0) }, start(62.0), start(58.0)],
            reboot: vec![start(41.0)],
        };
        let host = BenchHost { accel: "tcg".into(), cpus: 2 };
        insta::assert_snapshot!(Outcome::Bench { host, images: vec![image] }.to_string());
    }
}
