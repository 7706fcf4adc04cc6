//! `Provisioning`: servers of the site become a Kubernetes cluster.
//!
//! ```text
//! finalizer ─► decide: which host for which node ─► host.spec.consumerRef ─► hosts.ini ─► install ─► kubeconfig ─► Ready
//!              (MAC, resources, labels; pure)       (compare-and-swap)                    │ each node by SSH:
//!                                                                                         │ `foothold-agent node`
//! (deleted) ─► nodes are reset ─► Secrets, files ─► consumerRef goes ─► finalizer goes
//!
//! wishes   what the spec asks for, checked   inventory  hosts.ini, old form and new
//! decide   hosts for nodes                   kubeadm    its configurations
//! look     leases                            install    the work itself, a task of the operator
//! act      claims, Secrets, files            upgrade    to another version, node by node
//! tell     status, conditions, events        lost       nodes whose servers are gone or written again
//! watch    nodes of a cluster that runs      reach      connects to servers and checks them
//! upkeep   of one whose spec cannot be met   balance    the masters' virtual address
//! ready    what of a cluster does not run    route      to Services, where a site has no gateway
//! tenant   nodes that a SIPCluster chose     login      the OIDC provider that API servers trust
//! eta      when it will be done              day_one    the metrics API, volumes
//! leaving  nodes that are asked for no more  job        the user's own installer, in place of `install`
//! overlap  addresses that it cannot have
//! ```
//! The only records are `consumerRef` and an annotation on each host, and the ledger on each server. The status is made
//! from them, and a restarted operator goes on from there.

mod act;
mod balance;
mod controller;
mod day_one;
mod decide;
mod eta;
mod install;
mod inventory;
mod job;
mod kubeadm;
mod leaving;
mod login;
mod look;
mod lost;
mod overlap;
mod reach;
mod ready;
mod route;
mod tell;
mod tenant;
mod upgrade;
mod upkeep;
mod watch;
mod wishes;

pub use controller::run;
