//! Which arguments of programs, and which words of configuration files, are secrets.

use super::names::is_secret;

/// A flag of some programs whose value is a secret.
struct Flag {
    name: &'static str,
    programs: &'static [&'static str],
    /// The value may be a word of its own: `mysql` asks for a password that does not stand right behind `-p`.
    apart: bool,
    /// Without this sign in it, it is only a user's name.
    sign: Option<char>,
}

const fn flag(name: &'static str, programs: &'static [&'static str]) -> Flag {
    Flag { name, programs, apart: true, sign: None }
}

const fn user(name: &'static str, programs: &'static [&'static str]) -> Flag {
    Flag { sign: Some(':'), ..flag(name, programs) }
}

const IPMI: &[&str] =
    &["ipmi-power", "ipmipower", "ipmi-chassis", "ipmi-sel", "ipmi-sensors", "ipmi-config", "ipmiconsole", "bmc-info"];
const SNMP: &[&str] =
    &["snmpget", "snmpgetnext", "snmpbulkget", "snmpwalk", "snmpbulkwalk", "snmpset", "snmptrap", "snmptable"];
const FLAGS: &[Flag] = &[
    flag("-P", &["ipmitool"]),
    flag("-k", &["ipmitool"]),
    flag("-y", &["ipmitool"]),
    flag("-k", IPMI),
    flag("-p", IPMI),
    flag("-a", &["redis-cli"]),
    flag("-p", &["sshpass", "racadm", "mongo", "mongosh", "mongodump", "mongorestore"]),
    Flag { apart: false, ..flag("-p", &["mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump"]) },
    flag("-b", &["curl"]),
    user("-u", &["curl", "wget"]),
    user("-U", &["curl"]),
    user("--user", &["curl", "wget", "etcdctl"]),
    user("--proxy-user", &["curl"]),
    Flag { sign: Some('%'), ..flag("-U", &["smbclient", "rpcclient"]) },
    flag("-w", &["ldapsearch", "ldapadd", "ldapmodify", "ldapwhoami"]),
    flag("-c", SNMP),
    flag("-A", SNMP),
    flag("-X", SNMP),
    flag("-v", &["iscsiadm"]),
];
/// Other programs whose arguments are looked at, and words with which lines of configuration files begin.
const PROGRAMS: &[&str] = &["machine", "login", "echo", "iscsiadm", "nmcli", "racadm", "wg", "com2sec", "createUser"];
/// Those that take a name and its value as two words.
const TWO_WORDS: &[&str] = &["nmcli", "racadm", "wg"];
/// Words behind which a secret stands.
const DIRECTIVES: &[&str] = &[
    "rocommunity",
    "rwcommunity",
    "rocommunity6",
    "rwcommunity6",
    "requirepass",
    "masterauth",
    "bindpw",
    "rootpw",
    "PSK",
];

/// What stands before a word.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// Programs that the line has named so far.
    pub(super) programs: &'a [&'a str],
    /// The word before, and the one before that.
    pub(super) name: &'a str,
    pub(super) before: &'a str,
}

/// Whether the arguments behind this word are looked at.
pub(super) fn is_program(word: &str) -> bool {
    PROGRAMS.contains(&word) || FLAGS.iter().any(|flag| flag.programs.contains(&word))
}

impl Place<'_> {
    fn is(&self, program: &str) -> bool {
        self.programs.contains(&program)
    }

    fn any(&self, programs: &[&str]) -> bool {
        programs.iter().any(|program| self.is(program))
    }

    /// The flag that the word before is; curl's letters may stand together (`-sku`).
    fn flag(&self, value: &str) -> Option<&'static Flag> {
        let together = self.is("curl") && self.name.len() > 2 && self.name.ends_with('u');
        let letters =
            self.name.strip_prefix('-').is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_lowercase()));
        let name = if together && letters { "-u" } else { self.name };
        let is = |flag: &&Flag| flag.name == name && self.any(flag.programs) && is_whole(flag, value);
        FLAGS.iter().find(is)
    }

    /// Whether `value` is an argument that a program of this line takes for a secret. `apart`: it is a word of its own.
    /// `joined`: an equals sign stands before it.
    pub(super) fn is_argument(&self, value: &str, apart: bool, joined: bool) -> bool {
        if let Some(flag) = self.flag(value) {
            let of_secret = flag.name != "-v" || is_secret(self.before);
            return of_secret && ((apart && flag.apart) || (joined && flag.name.starts_with("--")));
        }
        apart && self.is_word_of_secret(value)
    }

    fn is_word_of_secret(&self, value: &str) -> bool {
        if self.any(TWO_WORDS) && !self.name.starts_with('-') && is_secret(self.name) {
            return true;
        }
        match self.name {
            "-p" => self.is("login"),
            "password" if self.before.starts_with("passwd/") => true,
            "password" => self.is("machine"),
            "community" => self.before == "snmp-server",
            "MD5" | "SHA" | "SHA-224" | "SHA-256" | "SHA-384" | "SHA-512" | "DES" | "AES" => self.is("createUser"),
            "--plaintext" | "--iscrypted" => self.before == "rootpw",
            // `ipmitool user set password 2 ...`
            number if self.before == "password" && number.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.is("ipmitool")
            }
            name => DIRECTIVES.contains(&name) && !value.starts_with('-') || self.is_last_of_com2sec(value),
        }
    }

    /// `com2sec NAME SOURCE COMMUNITY` (snmpd.conf(5)).
    fn is_last_of_com2sec(&self, value: &str) -> bool {
        self.is("com2sec") && !self.before.is_empty() && value.split_whitespace().count() == 1
    }

    /// A flag with the secret right behind it (`-pX`): where the flag ends, and where the secret does.
    pub(super) fn glued(&self, text: &str, end_of: impl Fn(&str) -> usize) -> Option<(usize, usize)> {
        let is = |flag: &&Flag| !flag.name.starts_with("--") && text.starts_with(flag.name) && self.any(flag.programs);
        let flag = FLAGS.iter().find(is).filter(|flag| flag.name != "-v")?;
        let behind = &text[flag.name.len()..];
        let end = end_of(behind);
        (end > 0 && is_whole(flag, &behind[..end])).then_some((flag.name.len(), flag.name.len() + end))
    }
}

fn is_whole(flag: &Flag, value: &str) -> bool {
    let first = value.split_whitespace().next().unwrap_or_default();
    flag.sign.is_none_or(|sign| first.contains(sign))
}
