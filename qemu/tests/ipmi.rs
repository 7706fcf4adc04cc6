//! A machine behind IPMI over LAN, switched by `ipmitool`.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foothold_qemu::bmc::{Faults, IpmiBmc, IpmiOptions, MemoryPower, Mode, Power, VmPower};
use foothold_qemu::{Disk, Patience, Tools, Vm, VmBuilder, Writes};
use tempfile::TempDir;

mod boot_sector;

const PATIENCE: Patience = Patience::total(Duration::from_secs(60));
const PASSWORD: &str = "of-this-test";

fn bmc(power: Arc<dyn Power>, faults: Faults) -> IpmiBmc {
    let tools = Tools::program_or_make("usr/bin/ipmi_sim").and_then(|_| Tools::locate());
    let options = IpmiOptions {
        listen: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0),
        user: "admin".to_owned(),
        password: PASSWORD.to_owned(),
        firmware: Mode::Legacy,
        power,
        faults,
    };
    let started = tools.map(|tools| IpmiBmc::start(&tools, options));
    started.unwrap_or_else(|error| panic!("{error}")).unwrap_or_else(|error| panic!("{error}"))
}

#[expect(clippy::disallowed_methods, reason = "a client of another make")]
fn ipmitool(bmc: &IpmiBmc, password: &str, words: &str) -> Output {
    let argv = Tools::program_or_make("usr/bin/ipmitool").unwrap_or_else(|error| panic!("{error}"));
    let address = bmc.address();
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).args(["-I", "lanplus", "-C", "3", "-N", "20", "-R", "1", "-U", "admin", "-P", password]);
    command.args(["-H", &address.ip().to_string(), "-p", &address.port().to_string()]).args(words.split(' '));
    command.output().expect("ipmitool runs")
}

/// What it is told.
fn ask(bmc: &IpmiBmc, words: &str) -> String {
    let done = ipmitool(bmc, PASSWORD, words);
    assert!(done.status.success(), "{words}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

fn machine(dir: &TempDir) -> (Arc<VmPower>, PathBuf) {
    let tools = Tools::locate_or_make().unwrap_or_else(|error| panic!("{error}"));
    let disk = Disk::open(boot_sector::image(dir)).unwrap_or_else(|error| panic!("{error}"));
    let disk = disk.writes(Writes::Overlay(dir.path().join("disk.qcow2")));
    let builder = VmBuilder::new(&tools, "server").memory_mib(128).cpus(1).boot(disk);
    (Arc::new(VmPower::new(builder, Duration::from_secs(2))), boot_sector::iso(dir))
}

fn wait_serial(power: &VmPower, text: &str) {
    let waited = power.with_vm(|vm| vm.wait_serial(PATIENCE, text).unwrap_or_else(|error| panic!("{error}")));
    waited.expect("the machine is on");
}

fn boots_first(power: &VmPower, device: &str) -> bool {
    let line = power.with_vm(|vm: &Vm| vm.command_line().to_owned()).expect("the machine is on");
    line.contains(&format!("id={device},bootindex=0")) || line.contains(&format!("bootindex=0,id={device}"))
}

fn wait_until_on(power: &dyn Power) {
    let begun = Instant::now();
    while !power.is_on() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the machine is off");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

#[test]
fn a_machine_is_switched_and_booted_otherwise_once_or_always() {
    let dir = tempfile::tempdir().expect("a folder");
    let (power, iso) = machine(&dir);
    let bmc = bmc(power.clone(), Faults::default());
    assert_eq!(ask(&bmc, "power status"), "Chassis Power is off");
    assert!(!ipmitool(&bmc, PASSWORD, "power reset").status.success(), "there is nothing to reset");
    ask(&bmc, "power on");
    wait_serial(&power, "boot number 1");
    assert_eq!(ask(&bmc, "power status"), "Chassis Power is on");
    assert!(boots_first(&power, "disk0-device"));

    power.insert(Some(&iso)).unwrap_or_else(|error| panic!("{error}"));
    ask(&bmc, "chassis bootdev cdrom");
    assert!(ask(&bmc, "chassis bootparam get 5").contains("Force Boot from CD/DVD"));
    ask(&bmc, "power reset");
    assert!(boots_first(&power, "cd"), "once");
    ask(&bmc, "power cycle");
    wait_until_on(&*power);
    assert!(boots_first(&power, "disk0-device"), "not a second time");
    wait_serial(&power, "boot number 2");

    ask(&bmc, "chassis bootdev cdrom options=persistent");
    for _ in 0..2 {
        ask(&bmc, "power off");
        assert_eq!(ask(&bmc, "power status"), "Chassis Power is off");
        ask(&bmc, "power on");
        assert!(boots_first(&power, "cd"), "always");
    }
    ask(&bmc, "power soft");
    assert_eq!(ask(&bmc, "power status"), "Chassis Power is on", "a system that does not care stays on");
    ask(&bmc, "power off");
    assert!(!power.is_on());
}

#[test]
fn a_wrong_password_is_refused_and_so_is_the_right_one_on_demand() {
    let power = Arc::new(MemoryPower::new(false));
    let honest = bmc(power.clone(), Faults::default());
    let refused = ipmitool(&honest, "another", "power on");
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Unable to establish"), "{refused:?}");
    let refusing = bmc(power.clone(), Faults { refuse_credentials: true, ..Faults::default() });
    assert!(!ipmitool(&refusing, PASSWORD, "power on").status.success());
    assert!(power.boots().is_empty());
    ask(&honest, "power on");
    assert_eq!(power.boots().len(), 1);
}

#[test]
fn the_simulator_ends_with_its_handle() {
    let bmc = bmc(Arc::new(MemoryPower::new(false)), Faults::default());
    let address = bmc.address();
    assert!(UdpSocket::bind(address).is_err(), "it has the port");
    drop(bmc);
    UdpSocket::bind(address).expect("the port is free");
}
