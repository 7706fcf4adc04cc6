//! How much of DATA uploads may take. Pure.

use std::collections::BTreeMap;

use agent_api::bpa::{Kind, KindStorage, Storage};

use super::record::Record;

/// Shares of DATA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadLimits {
    /// Percent of DATA for each kind.
    pub percent: BTreeMap<Kind, u8>,
    /// Percent of DATA that stays free: the kubelet removes images with less than 15 % free, and pods with 10 %.
    pub reserve_percent: u8,
    /// Most images of one kind.
    pub images: usize,
}

impl Default for UploadLimits {
    fn default() -> Self {
        let percent = [(Kind::BinaryImages, 15), (Kind::ContainerImages, 25), (Kind::OsImages, 40)];
        Self { percent: percent.into(), reserve_percent: 16, images: 10_000 }
    }
}

/// Why there is no room.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The share of the kind is used up.
    #[error(
        "{kind} may take {quota} bytes, {used} are taken: no room for {wanted} more; hint: DELETE what is not needed"
    )]
    Quota {
        /// Which.
        kind: Kind,
        /// Its share.
        quota: u64,
        /// Taken of it.
        used: u64,
        /// Asked for.
        wanted: u64,
    },
    /// The disk is nearly full.
    #[error(
        "{free} bytes are free, {reserve} of them stay free for the cluster and {promised} are promised: no room for {wanted} more; hint: DELETE what is not needed"
    )]
    Disk {
        /// Free now.
        free: u64,
        /// Stay free.
        reserve: u64,
        /// Announced by others and not yet sent.
        promised: u64,
        /// Asked for.
        wanted: u64,
    },
    /// Too many images.
    #[error("there are {0} images of this kind, the most there may be; hint: DELETE what is not needed")]
    Images(usize),
}

fn share(total: u64, percent: u8) -> u64 {
    u64::try_from(u128::from(total) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

/// What is taken, of a disk of `total` bytes with `free` of them free.
pub(super) fn storage<'a>(
    limits: &UploadLimits,
    total: u64,
    free: u64,
    records: impl Iterator<Item = &'a Record>,
) -> Storage {
    let mut kinds: BTreeMap<Kind, KindStorage> = Kind::ALL
        .into_iter()
        .map(|kind| {
            let percent = limits.percent.get(&kind).copied().unwrap_or(0);
            (kind, KindStorage { quota_bytes: share(total, percent), ..KindStorage::default() })
        })
        .collect();
    for record in records {
        let kind = kinds.entry(record.key.kind).or_default();
        kind.images += 1;
        kind.used_bytes = kind.used_bytes.saturating_add(record.length);
    }
    Storage { total_bytes: total, free_bytes: free, reserve_bytes: share(total, limits.reserve_percent), kinds }
}

/// Whether `wanted` more bytes of a kind fit, when `promised` bytes are announced and still to come.
pub(super) fn admit(
    limits: &UploadLimits,
    storage: &Storage,
    kind: Kind,
    promised: u64,
    wanted: u64,
    new_image: bool,
) -> Result<(), NoRoom> {
    let of_kind = storage.kinds.get(&kind).copied().unwrap_or_default();
    if new_image && of_kind.images >= limits.images {
        return Err(NoRoom::Images(of_kind.images));
    }
    if of_kind.used_bytes.saturating_add(wanted) > of_kind.quota_bytes {
        let (quota, used) = (of_kind.quota_bytes, of_kind.used_bytes);
        return Err(NoRoom::Quota { kind, quota, used, wanted });
    }
    let (free, reserve) = (storage.free_bytes, storage.reserve_bytes);
    if reserve.saturating_add(promised).saturating_add(wanted) > free {
        return Err(NoRoom::Disk { free, reserve, promised, wanted });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use agent_api::bpa::Kind;

    use super::{NoRoom, UploadLimits, admit, storage};

    #[test]
    fn each_kind_has_its_share_and_the_cluster_its_reserve() {
        let limits = UploadLimits::default();
        let now = |free| storage(&limits, 1000, free, std::iter::empty());
        let os = |free, promised, wanted| admit(&limits, &now(free), Kind::OsImages, promised, wanted, true);
        assert_eq!(os(1000, 0, 400), Ok(()));
        let over = NoRoom::Quota { kind: Kind::OsImages, quota: 400, used: 0, wanted: 401 };
        assert_eq!(os(1000, 0, 401), Err(over));
        assert_eq!(os(560, 0, 400), Ok(()));
        assert!(matches!(os(559, 0, 400), Err(NoRoom::Disk { reserve: 160, .. })));
        assert!(matches!(os(1000, 600, 300), Err(NoRoom::Disk { promised: 600, .. })));
        assert!(matches!(os(1000, 0, u64::MAX), Err(NoRoom::Quota { .. })));
        let none = UploadLimits { images: 0, ..UploadLimits::default() };
        assert_eq!(admit(&none, &now(1000), Kind::OsImages, 0, 1, true), Err(NoRoom::Images(0)));
    }
}
