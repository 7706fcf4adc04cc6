//! User data for cloud-init.

use std::fmt::Write;

use serde_json::{Map, Value, json};
use sha_crypt::{Algorithm, Params, PasswordHasher, ShaCrypt};

use super::machine::{Password, User};
use super::shell::Provider;

/// Rounds of SHA-512 crypt, as ICN's `mkpasswd` had.
const ROUNDS: u32 = 4096;
/// Bytes of salt: 16 characters in the hash.
const SALT: usize = 12;

/// What cloud-init reads.
pub(super) fn cloud_config(user: &User, provider: &Provider, ssh_keys: &[String]) -> anyhow::Result<String> {
    let mut config = Map::new();
    let hash = match &user.password {
        None => None,
        Some(Password::Hashed(hash)) => Some(hash.clone()),
        Some(Password::Plain(password)) => Some(hashed(password)?),
    };
    if let Some(name) = &user.name {
        let mut entry = json!({ "name": name, "sudo": "ALL=(ALL) NOPASSWD:ALL", "shell": "/bin/bash" });
        if let Some(hash) = &hash {
            entry["lock_passwd"] = json!(false);
            entry["passwd"] = json!(hash);
        }
        config.insert("users".into(), json!([entry]));
    } else if let Some(hash) = &hash {
        config.insert("password".into(), json!(hash));
    }
    if hash.is_some() {
        config.insert("chpasswd".into(), json!({ "expire": false }));
        config.insert("ssh_pwauth".into(), json!(true));
    }
    if let Some(fqdn) = &user.fqdn {
        config.insert("fqdn".into(), json!(fqdn));
    }
    config.insert("disable_root".into(), json!(false));
    let keys: Vec<&String> = user.ssh_key.iter().chain(ssh_keys).collect();
    if !keys.is_empty() {
        config.insert("ssh_authorized_keys".into(), json!(keys));
        if let Some(entry) = config.get_mut("users").and_then(|users| users.get_mut(0)) {
            entry["ssh_authorized_keys"] = json!(keys);
        }
    }
    outside(provider, &mut config);
    Ok(format!("#cloud-config\n{}", serde_saphyr::to_string(&Value::Object(config))?))
}

/// Gateway and name servers, for hosts that do not get them by DHCP.
fn outside(provider: &Provider, config: &mut Map<String, Value>) {
    let (mut files, mut commands) = (Vec::new(), Vec::new());
    if !provider.dns.is_empty() {
        let mut text = "[Resolve]\nDNS=".to_owned();
        for (index, server) in provider.dns.iter().enumerate() {
            let _ = write!(text, "{}{server}", if index == 0 { "" } else { " " });
        }
        text.push('\n');
        files.push(json!({ "path": "/etc/systemd/resolved.conf.d/provider.conf", "content": text }));
        commands.push(json!(["systemctl", "restart", "systemd-resolved"]));
    }
    if let Some(gateway) = provider.gateway {
        let family = if gateway.is_ipv4() { "-4" } else { "-6" };
        commands.push(json!(["ip", family, "route", "replace", "default", "via", gateway]));
    }
    if !files.is_empty() {
        config.insert("write_files".into(), json!(files));
    }
    if !commands.is_empty() {
        config.insert("runcmd".into(), json!(commands));
    }
}

/// SHA-512 crypt, with a salt of its own. (crypt(5): `$6$rounds=N$salt$hash`)
fn hashed(password: &str) -> anyhow::Result<String> {
    let params = Params::new(ROUNDS).map_err(|error| anyhow::anyhow!("{error}"))?;
    let salt: [u8; SALT] = rand::random();
    let hash = ShaCrypt::new(Algorithm::Sha512Crypt, params)
        .hash_password_with_salt(password.as_bytes(), &salt)
        .map_err(|error| anyhow::anyhow!("hashing a password: {error}"))?;
    Ok(hash.as_str().to_owned())
}
