//! How long to wait after errors.

use jiff::{SignedDuration, Timestamp};

/// Errors after which the wait gets no longer: nobody waits for hours once the cause is gone.
const MOST: i64 = 4;

/// From 2^n minutes up to half is taken off, so that hosts that failed together do not try together: after one error
/// 1-2 min, after four or more 8-16 min. `chance` is from 0 to 1.
pub fn pause(errors: i64, chance: f64) -> SignedDuration {
    let exponent = u32::try_from(errors.clamp(0, MOST)).unwrap_or_default();
    let whole = f64::from(2_u32.pow(exponent) * 60);
    SignedDuration::try_from_secs_f64(whole - whole * chance.clamp(0.0, 1.0) / 2.0)
        .unwrap_or(SignedDuration::from_mins(1))
}

/// When to try again after an error at `since`. The end of time for moments that do not exist.
pub fn until(since: Timestamp, errors: i64, chance: f64) -> Timestamp {
    since.checked_add(pause(errors, chance)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rstest::rstest;

    use super::pause;

    /// Errors, least and most minutes of the wait.
    #[rstest]
    #[case(1, 1, 2)]
    #[case(2, 2, 4)]
    #[case(4, 8, 16)]
    #[case(40, 8, 16)]
    fn waits_grow_with_errors_up_to_an_end(#[case] errors: i64, #[case] least: i64, #[case] most: i64) {
        assert_eq!(pause(errors, 1.0), SignedDuration::from_mins(least));
        assert_eq!(pause(errors, 0.0), SignedDuration::from_mins(most));
    }
}
