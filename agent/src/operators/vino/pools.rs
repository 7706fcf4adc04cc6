//! Pools of addresses in the cluster (`IPPool`). A pool is read, changed ([`super::ipam`]) and written. If another writer
//! was faster, the change is made again on the newer pool.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_api::net::{Cidr, MacAddress};
use agent_api::vino::pool::{AllocatedIp, IpPool, IpPoolSpec, Range};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::Mutex;

use super::ipam::{self, IpamError, Want};
use crate::operators::kit::{ObjectError, doing};

/// Pools of a namespace. Changes in this program wait for each other; against other programs the API server's check of
/// versions helps.
#[derive(Clone)]
pub struct Pools {
    api: Api<IpPool>,
    turn: Arc<Mutex<()>>,
}

/// Why no address was given.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The request cannot be met.
    #[error(transparent)]
    Ipam(#[from] IpamError),
    /// Its subnet overlaps with that of another pool.
    #[error("subnet {subnet} overlaps with subnet {other} of IPPool `{pool}`, which Vino `{vino}` has addresses of")]
    Overlap {
        /// The subnet.
        subnet: String,
        /// That of the pool.
        other: String,
        /// The pool.
        pool: String,
        /// Who has addresses of it.
        vino: String,
    },
    /// A pool of that name is one of another subnet.
    #[error(
        "IPPool `{pool}` is to have subnet {subnet}, and one of that name has `{other}`; hint: delete it if nobody needs it"
    )]
    Name {
        /// The pool.
        pool: String,
        /// The subnet.
        subnet: String,
        /// That of the pool.
        other: String,
    },
    /// The API server refused or did not answer.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// The pool of a subnet among all of them.
fn of_subnet<'a>(all: &'a [IpPool], subnet: &str) -> Option<&'a IpPool> {
    let network = |text: &str| Cidr::parse(text).map(Cidr::network);
    all.iter().find(|pool| network(&pool.spec.subnet).is_some() && network(&pool.spec.subnet) == network(subnet))
}

/// Why a pool of this subnet cannot be made, if so: one of its name is that of another subnet, or one overlaps with it.
fn in_the_way(all: &[IpPool], subnet: &str) -> Option<PoolError> {
    let pool = ipam::pool_name(subnet);
    let named = all.iter().find(|other| other.name_any() == pool);
    let named = named.map(|it| PoolError::Name { pool, subnet: subnet.to_owned(), other: it.spec.subnet.clone() });
    named.or_else(|| overlapping(all, subnet))
}

/// Another pool whose subnet overlaps with this one.
fn overlapping(all: &[IpPool], subnet: &str) -> Option<PoolError> {
    let network = Cidr::parse(subnet)?;
    let found = all.iter().find(|pool| {
        let other = Cidr::parse(&pool.spec.subnet);
        other.is_some_and(|it| it.network() != network.network() && it.overlaps(network)) && !ipam::is_idle(&pool.spec)
    })?;
    let vinos = found.spec.allocated_ips.iter().map(|one| &one.vino);
    let vino = vinos.chain(found.spec.allocated_ranges.iter().map(|one| &one.vino)).find(|vino| !vino.is_empty());
    Some(PoolError::Overlap {
        subnet: subnet.to_owned(),
        other: found.spec.subnet.clone(),
        pool: found.name_any(),
        vino: vino.cloned().unwrap_or_default(),
    })
}

/// MAC addresses in all pools but one.
fn taken(all: &[IpPool], but: Option<&IpPool>) -> BTreeSet<MacAddress> {
    let others = all.iter().filter(|pool| but.is_none_or(|but| but.name_any() != pool.name_any()));
    others.flat_map(|pool| &pool.spec.allocated_ips).filter_map(|one| one.mac.parse().ok()).collect()
}

impl Pools {
    /// Those of a namespace.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), turn: Arc::default() }
    }

    async fn all(&self) -> Result<Vec<IpPool>, ObjectError> {
        Ok(self.api.list(&ListParams::default()).await.map_err(doing("listing IPPools"))?.items)
    }

    /// Changes the pool of a subnet. The pool is created when there is none, and deleted when nothing in it is used any
    /// more. `change` also gets the MAC addresses of the other pools; it is called again when another writer was faster.
    ///
    /// # Errors
    /// An error of `change`, an overlap with another pool, or an error of the API server.
    pub async fn change<T>(
        &self,
        subnet: &str,
        mac_prefix: &str,
        change: impl Fn(&mut IpPoolSpec, &BTreeSet<MacAddress>) -> Result<T, IpamError> + Send + Sync,
    ) -> Result<T, PoolError> {
        let _turn = self.turn.lock().await;
        loop {
            let all = self.all().await?;
            let found = of_subnet(&all, subnet);
            if found.is_none()
                && let Some(error) = in_the_way(&all, subnet)
            {
                return Err(error);
            }
            let before = found.map_or_else(|| ipam::new_pool(subnet, mac_prefix), |pool| pool.spec.clone());
            let mut spec = ipam::with_prefix(before.clone(), mac_prefix);
            let made = change(&mut spec, &taken(&all, found))?;
            if spec.allocated_ips == before.allocated_ips {
                // Several may share the pool, each with a prefix of his own: it is written where an address is.
                (spec.mac_prefix, spec.next_mac) = (before.mac_prefix, before.next_mac);
            }
            match self.write(found, spec, subnet).await {
                Ok(()) => return Ok(made),
                Err(error) if error.is_stale() || error.is_gone() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives an address.
    ///
    /// # Errors
    /// See [`ipam::allocate`] and [`Self::change`].
    pub async fn allocate(
        &self,
        subnet: &str,
        mac_prefix: &str,
        range: &Range,
        want: Want<'_>,
    ) -> Result<AllocatedIp, PoolError> {
        self.change(subnet, mac_prefix, |pool, taken| {
            ipam::add_range(pool, range)?;
            ipam::allocate(pool, range, want, taken)
        })
        .await
    }

    /// Frees all addresses of a `Vino` in pools other than those of `subnets`.
    pub async fn free_others(&self, vino: &str, subnets: &[&str]) -> Result<(), ObjectError> {
        let _turn = self.turn.lock().await;
        loop {
            let all = self.all().await?;
            let kept: Vec<String> = subnets.iter().filter_map(|it| Some(of_subnet(&all, it)?.name_any())).collect();
            let mut is_stale = false;
            for pool in all.iter().filter(|pool| !kept.contains(&pool.name_any())) {
                let mut spec = pool.spec.clone();
                ipam::free(&mut spec, vino, &|_| false, &[]);
                let subnet = spec.subnet.clone();
                // A pool of somebody else's stays as it is.
                if spec.allocated_ips == pool.spec.allocated_ips && spec.allocated_ranges == pool.spec.allocated_ranges
                {
                    continue;
                }
                match self.write(Some(pool), spec, &subnet).await {
                    Err(error) if error.is_stale() || error.is_gone() => is_stale = true,
                    other => other?,
                }
            }
            if !is_stale {
                return Ok(());
            }
        }
    }

    /// Writes a pool, unless it was changed since it was read.
    async fn write(&self, found: Option<&IpPool>, spec: IpPoolSpec, subnet: &str) -> Result<(), ObjectError> {
        let Some(found) = found else {
            if ipam::is_idle(&spec) {
                return Ok(());
            }
            let name = ipam::pool_name(subnet);
            let made = self.api.create(&PostParams::default(), &IpPool::new(&name, spec)).await;
            return made.map(drop).map_err(doing(format!("making IPPool `{name}`")));
        };
        if found.spec == spec {
            return Ok(());
        }
        let name = found.name_any();
        if ipam::is_idle(&spec) {
            let as_read = Preconditions { resource_version: found.resource_version(), uid: found.uid() };
            let params = DeleteParams { preconditions: Some(as_read), ..DeleteParams::default() };
            let gone = self.api.delete(&name, &params).await;
            return gone.map(drop).map_err(doing(format!("deleting IPPool `{name}`")));
        }
        let changed = IpPool { spec, ..found.clone() };
        let written = self.api.replace(&name, &PostParams::default(), &changed).await;
        written.map(drop).map_err(doing(format!("changing IPPool `{name}`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The API server refuses to make it again and again, and that is no sign of a faster writer.
    #[test]
    fn a_pool_of_that_name_with_another_subnet_is_told() {
        let spec = IpPoolSpec { subnet: "172.16.0.0/24".to_owned(), ..IpPoolSpec::default() };
        let all = [IpPool::new("ippool-10-0-0-0-16", spec)];
        let why = in_the_way(&all, "10.0.0.0/16").expect("in the way").to_string();
        assert!(why.contains("IPPool `ippool-10-0-0-0-16`") && why.contains("has `172.16.0.0/24`"), "{why}");
        assert!(in_the_way(&all, "10.1.0.0/16").is_none());
    }
}
