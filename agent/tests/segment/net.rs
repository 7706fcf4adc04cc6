//! A network namespace: a thread that lives in one.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use foothold_agent::host::{Runner, System};
use foothold_qemu::Tools;
use nix::sched::{CloneFlags, unshare};

type Job = Box<dyn FnOnce() + Send>;

/// The namespace is gone when the last socket and process in it is.
pub struct Net {
    jobs: Sender<Job>,
    thread: i32,
}

impl Net {
    /// A new one. Needs root.
    pub fn new() -> Self {
        let (jobs, todo) = channel::<Job>();
        let (say, said) = channel();
        std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace: this test wants to be root");
            say.send(nix::unistd::gettid().as_raw()).expect("said");
            for job in todo {
                job();
            }
        });
        Self { jobs, thread: said.recv().expect("a thread") }
    }

    /// Runs something in it, beside everything else.
    pub fn start<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (say, said) = channel();
        let job = move || {
            let _ = say.send(what());
        };
        self.jobs.send(Box::new(job)).expect("the thread lives");
        said
    }

    /// Runs something in it.
    pub fn run<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> T {
        self.start(what).recv().expect("it ended well")
    }

    /// Runs `ip` in it.
    pub fn ip(&self, arguments: &str) {
        let arguments = arguments.to_owned();
        self.run(move || {
            let mut argv = Tools::program_or_make("usr/bin/ip").expect("ip is in the toolbox");
            argv.extend(arguments.split(' ').map(str::to_owned));
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            System::new().run(&argv, b"", Duration::from_secs(20)).expect("ip works");
        });
    }

    /// Plugs another namespace into the bridge of this one: it has `eth0`, this one `port`.
    pub fn plug(&self, port: &str, other: &Self, mac: &str, address: &str) {
        self.ip(&format!("link add {port} type veth peer name eth0 address {mac} netns {}", other.thread));
        self.ip(&format!("link set {port} master br0 up"));
        other.ip("link set lo up");
        other.ip(&format!("address add {address}/24 dev eth0"));
        other.ip("link set eth0 up");
    }
}
