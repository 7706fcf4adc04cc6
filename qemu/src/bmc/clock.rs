//! The BMC's clock: ours, with a skew, told with the site's offset.

use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// The offset of `+HH:MM` or `-HH:MM`.
pub(super) fn offset(text: &str) -> Option<Offset> {
    let (sign, rest) =
        text.strip_prefix('-').map_or_else(|| Some((1, text.strip_prefix('+')?)), |rest| Some((-1, rest)))?;
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}

/// The BMC's time in RFC 3339 with whole seconds, as DSP0266 ("Date-Time values") has it.
pub(super) fn told(now: Timestamp, skew: SignedDuration, at: Offset) -> String {
    let time = now.checked_add(skew).unwrap_or(now);
    time.to_zoned(TimeZone::fixed(at)).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

/// How far the BMC is ahead once its clock is set to `text`.
pub(super) fn skew(now: Timestamp, text: &str) -> Option<SignedDuration> {
    let set: Timestamp = text.parse().ok()?;
    Some(set.duration_since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_set_ahead_stays_ahead_and_is_told_with_its_offset() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().expect("a time");
        let ahead = skew(now, "2026-01-02T04:05:05+00:00").expect("a skew");
        assert_eq!(ahead, SignedDuration::from_mins(61));
        let at = offset("-06:00").expect("an offset");
        assert_eq!(told(now, ahead, at), "2026-01-01T22:05:05-06:00");
        assert_eq!(offset("6"), None);
    }
}
