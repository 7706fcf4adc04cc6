//! A box of a site that has booted an image, and what a test does to it.

use std::future::Future;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use agent_api::ports;
use foothold_agent::cluster::kubeconfig::ParsedKubeconfig;
use foothold_qemu::Nic;
use foothold_tests::{Appliance, Boxed, Client, How};
use tempfile::TempDir;

use crate::bench::{BOX, Site, in_namespace, lan};

/// The card that it is on the segment with.
pub const MAC: &str = "52:54:00:22:00:99";
/// This machine, beside it.
pub const BESIDE: Ipv4Addr = Ipv4Addr::new(172, 22, 0, 254);

/// A box that provisions on the segment, which is all that it is connected to. What it said and showed is kept when the
/// test fails.
pub struct Booted {
    appliance: Appliance,
    /// Some, but while it has no power.
    machine: Option<Boxed>,
    /// What its disk has beyond the image.
    disk: TempDir,
}

impl Booted {
    /// Switched on, and ready.
    pub fn on(appliance: Appliance) -> Self {
        lan().address(&format!("{BESIDE}/24")).expect("an address");
        let mut booted = Self { appliance, machine: None, disk: tempfile::tempdir().expect("a folder") };
        booted.switch_on();
        booted
    }

    fn switch_on(&mut self) {
        let tap = lan().cable("tapbox").expect("a cable");
        let (nics, overlay) = ([Nic::device(&tap).mac(MAC)], self.disk.path().join("disk.qcow2"));
        let how = How { nics: &nics, overlay: Some(&overlay), ..How::default() };
        self.machine.insert(self.appliance.boot(how)).until_ready();
    }

    /// Its power goes at once, and comes back; it is ready again at the end.
    pub fn lose_power(&mut self) {
        let machine = self.machine.take().expect("it is on");
        machine.session.vm.kill().expect("the power is cut");
        drop(machine);
        self.switch_on();
    }

    /// The machine.
    pub fn machine(&self) -> &Boxed {
        self.machine.as_ref().expect("it is on")
    }

    /// A client of its REST, which waits with a runtime of its own.
    pub fn client(&self) -> Client {
        Client::new((BOX, ports::WEB).into(), (BOX, ports::KUBERNETES_API).into(), self.machine().token())
    }

    /// Its administrator's kubeconfig.
    pub fn kubeconfig(&self) -> ParsedKubeconfig {
        self.client().kubeconfig()
    }
}

impl Drop for Booted {
    #[expect(clippy::print_stderr, reason = "for who reads why it failed")]
    fn drop(&mut self) {
        if let Some(machine) = self.machine.as_ref().filter(|_| std::thread::panicking()) {
            let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("site-box");
            match machine.session.vm.keep(&dir) {
                Ok(()) => eprintln!("what the box said and showed is in `{}`", dir.display()),
                Err(error) => eprintln!("what the box said and showed is lost: {error}"),
            }
        }
    }
}

/// Runs a test with the site of a box that was just switched on and carries these OS images.
pub fn with_booted_box<F: Future<Output = ()>>(images: &[&str], test: impl FnOnce(Site) -> F + Send + 'static) {
    with_box_beside(images, || (), |site, ()| test(site));
}

/// The same, where something else is on the segment before the box is switched on.
pub fn with_box_beside<B, F: Future<Output = ()>>(
    images: &[&str],
    beside: impl FnOnce() -> B + Send + 'static,
    test: impl FnOnce(Site, B) -> F + Send + 'static,
) {
    let dir = tempfile::tempdir().expect("a folder");
    let definition = definition(dir.path(), images, "");
    let make = move || Appliance::of(&definition);
    in_namespace(make, |appliance| {
        let beside = beside();
        // Its client waits with a runtime of its own.
        let booted = Booted::on(appliance);
        let kubeconfig = booted.kubeconfig();
        async move { test(Site::booted(booted, &kubeconfig).await, beside).await }
    });
}

/// A definition of a box that provisions, and has these other services, in a folder of its own.
pub fn definition(dir: &Path, images: &[&str], services: &str) -> PathBuf {
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../images/os");
    let one = |name: &&str| format!("{{ name: {name}, from: {}, formats: [raw] }}", recipes.join(name).display());
    let text = format!(
        "apiVersion: foothold.dev/v1\nkind: Appliance\nmetadata: {{ name: site, version: 1.0.0 }}\n\
         kubernetes: {{ version: v1.36.4, from: modules }}\noutputs: [{{ format: qcow2 }}]\n\
         content: {{ osImages: [{}] }}\n\
         services: {{ provisioning: {{ interface: {{ macAddress: \"{MAC}\" }}, address: {BOX}/24, \
         range: 172.22.0.10-172.22.0.100 }}{services} }}\n",
        images.iter().map(one).collect::<Vec<_>>().join(", ")
    );
    let path = dir.join("appliance.yaml");
    fs_err::write(&path, text).expect("written");
    path
}
