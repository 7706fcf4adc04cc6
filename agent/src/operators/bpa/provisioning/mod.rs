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
//! act      claims, Secrets, files            upgrade    another version, node by node
//! tell     status, conditions, events        lost       nodes whose servers have nothing of them any more
//! watch    nodes of a cluster that was made  reach      servers, connected and checked
//!                                            balance    the masters' virtual address
//!                                            route      to Services, where a site has no gateway
//!                                            day_one    the metrics API, volumes
//! tenant   nodes that a SIPCluster chose     job        somebody else's installer, in place of all that
//! ```
//! What is recorded is `consumerRef` and an annotation on each host, and the ledger on each server: the status is made from
//! them, and an operator that comes back goes on.

mod act;
mod balance;
mod controller;
mod day_one;
mod decide;
mod install;
mod inventory;
mod job;
mod kubeadm;
mod look;
mod lost;
mod reach;
mod route;
mod tell;
mod tenant;
mod upgrade;
mod watch;
mod wishes;

pub use controller::run;
