//! The history of an image's figures: a line of JSON for each `foothold bench --record`, and a picture of all of them.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use crate::host::files::write_shared;
use crate::report::{BenchImage, Figures, spread};

/// The history, a JSON object a line, the oldest first.
const LINES: &str = "figures.jsonl";
/// The picture.
const PICTURE: &str = "figures.svg";
/// Its size in pixels.
const SIZE: (u32, u32) = (720, 220);

/// A measurement: the middle of each figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    /// When, UTC.
    date: String,
    /// Bytes of the image.
    bytes: u64,
    first_boot: Figures,
    reboot: Figures,
}

/// Adds a measurement of an image, and draws the picture anew.
///
/// # Errors
/// The history cannot be read, which is named with its line; or nothing can be written.
pub fn add(folder: &Path, image: &BenchImage) -> Result<()> {
    let path = folder.join(LINES);
    let mut text = if path.exists() { fs_err::read_to_string(&path)? } else { String::new() };
    let mut records = read(&text).with_context(|| format!("reading `{}`", path.display()))?;
    let record = Record {
        date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        bytes: image.bytes,
        first_boot: middle(&image.first_boot),
        reboot: middle(&image.reboot),
    };
    text.push_str(&serde_json::to_string(&record)?);
    text.push('\n');
    records.push(record);
    fs_err::create_dir_all(folder)?;
    write_shared(&path, text.as_bytes())?;
    Ok(write_shared(&folder.join(PICTURE), draw(&records)?.as_bytes())?)
}

fn read(text: &str) -> Result<Vec<Record>> {
    let line = |(number, line)| {
        serde_json::from_str(line).map_err(|error| anyhow!("line {}: {error}\nhint: remove the line", number + 1))
    };
    text.lines().enumerate().map(line).collect()
}

/// The middle of each figure of some starts.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "MiB")]
fn middle(starts: &[Figures]) -> Figures {
    let of = |value: &dyn Fn(&Figures) -> Option<f64>| {
        let mut values: Vec<f64> = starts.iter().filter_map(value).collect();
        spread(&mut values).map(|[_, middle, _]| middle)
    };
    Figures {
        api_secs: of(&|one| one.api_secs),
        node_ready_secs: of(&|one| Some(one.node_ready_secs)).unwrap_or_default(),
        roles_secs: of(&|one| one.roles_secs),
        pods_secs: of(&|one| one.pods_secs),
        ready_secs: of(&|one| Some(one.ready_secs)).unwrap_or_default(),
        processor_secs: of(&|one| Some(one.processor_secs)).unwrap_or_default(),
        memory_used_mib: of(&|one| Some(one.memory_used_mib as f64)).unwrap_or_default() as u64,
        others_secs: of(&|one| Some(one.others_secs)).unwrap_or_default(),
        pressure_percent: of(&|one| one.pressure_percent),
        idle: starts.iter().find_map(|one| one.idle.clone()),
    }
}

/// Two charts side by side: seconds to `ready`, and the size of the image.
#[expect(clippy::cast_precision_loss, reason = "MiB")]
fn draw(records: &[Record]) -> Result<String> {
    let mut svg = String::new();
    {
        let whole = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        whole.fill(&WHITE)?;
        let (left, right) = whole.split_horizontally(SIZE.0 / 2);
        let secs = |of: fn(&Record) -> f64| records.iter().map(of).collect::<Vec<_>>();
        let times = [
            ("first boot", BLUE, secs(|record| record.first_boot.ready_secs)),
            ("after a power cut", RED, secs(|record| record.reboot.ready_secs)),
        ];
        chart(&left, "seconds to ready", &times)?;
        let size = [("", BLACK, secs(|record| record.bytes as f64 / f64::from(1 << 20)))];
        chart(&right, "image, MiB", &size)?;
        whole.present()?;
    }
    Ok(svg)
}

/// One chart: a line for each row of values, from zero to what is a little more than the most.
#[expect(clippy::cast_precision_loss, reason = "few measurements")]
fn chart(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    lines: &[(&str, RGBColor, Vec<f64>)],
) -> Result<()> {
    let most = lines.iter().flat_map(|(_, _, values)| values).copied().fold(1.0, f64::max);
    let count = lines.iter().map(|(_, _, values)| values.len()).max().unwrap_or_default();
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 14))
        .margin(8)
        .x_label_area_size(16)
        .y_label_area_size(40)
        .build_cartesian_2d(0.0..count.max(2) as f64 - 1.0, 0.0..most * 1.15)?;
    chart.configure_mesh().disable_x_mesh().x_labels(0).y_labels(5).light_line_style(WHITE).draw()?;
    for (name, colour, values) in lines {
        let points = || values.iter().enumerate().map(|(index, value)| (index as f64, *value));
        let drawn = chart.draw_series(LineSeries::new(points(), colour))?;
        if !name.is_empty() {
            let colour = *colour;
            drawn.label(*name).legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], colour));
        }
        chart.draw_series(points().map(|point| Circle::new(point, 2, colour.filled())))?;
    }
    if lines.len() > 1 {
        chart.configure_series_labels().position(SeriesLabelPosition::LowerRight).draw()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{LINES, PICTURE, add, read};
    use crate::report::{BenchImage, Figures};

    fn image(ready: [f64; 3]) -> BenchImage {
        let start = |ready_secs: f64| Figures { ready_secs, node_ready_secs: 1.0, ..Figures::default() };
        BenchImage {
            file: "box.qcow2".into(),
            bytes: 300 << 20,
            layers: Vec::new(),
            blob_bytes: 0,
            first_boot: ready.map(start).to_vec(),
            reboot: vec![start(30.0)],
        }
    }

    #[test]
    fn each_measurement_is_a_line_of_its_middle_and_the_picture_has_all() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("history");
        add(&folder, &image([90.0, 80.0, 85.0])).expect("added");
        add(&folder, &image([60.0, 70.0, 65.0])).expect("added");
        let records = read(&fs_err::read_to_string(folder.join(LINES)).expect("a history")).expect("right");
        let secs: Vec<f64> = records.iter().map(|record| record.first_boot.ready_secs).collect();
        assert_eq!((secs, records[1].bytes), (vec![85.0, 65.0], 300 << 20));
        let svg = fs_err::read_to_string(folder.join(PICTURE)).expect("a picture");
        assert!(
            svg.starts_with("<svg") && svg.contains("seconds to ready") && svg.contains("after a power cut"),
            "{svg}"
        );
        assert_eq!(svg.matches("<circle").count(), 6, "three lines of two measurements");
    }

    #[test]
    fn a_history_that_is_broken_is_left_alone_and_its_line_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        add(dir.path(), &image([1.0; 3])).expect("added");
        let broken = fs_err::read_to_string(dir.path().join(LINES)).expect("a history") + "{\n";
        fs_err::write(dir.path().join(LINES), &broken).expect("written");
        let error = format!("{:#}", add(dir.path(), &image([1.0; 3])).expect_err("line 2 is none"));
        assert!(error.contains("line 2:") && error.contains("figures.jsonl"), "{error}");
        assert_eq!(fs_err::read_to_string(dir.path().join(LINES)).expect("kept"), broken);
    }
}
