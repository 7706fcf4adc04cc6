//! Reads what the user has in Secrets for a provider, and what it has of its own.

use std::collections::BTreeMap;
use std::net::IpAddr;

use agent_api::sip::auth::{Auth, Upstream};
use agent_api::sip::cluster::SipCluster;
use jiff::Timestamp;

use super::material::{Authority, Material};
use super::{AuthGiven, Bound, Program, authority_name, hashes, names, text_of};
use crate::operators::kit::{Object as _, ObjectError};
use crate::operators::sip::cluster::controller::Controller;
use crate::operators::sip::cluster::infra::Infra;

/// Secrets that a provider is made of, by name: others' and the user's.
pub fn secrets(auth: &Auth) -> impl Iterator<Item = &str> {
    let upstream = auth.upstream.as_ref().and_then(|upstream| Some(upstream.secret()?.1));
    [auth.ca_secret.as_deref(), auth.password_hashes.as_deref(), upstream].into_iter().flatten()
}

/// A host as certificates spell it. With another spelling the certificate would never be that of the host, and be made anew
/// each time.
fn spelled(host: String) -> String {
    host.parse::<IpAddr>().map_or(host, |address| address.to_string())
}

/// An outcome that says in words what a user has to change.
type Found<T> = Result<Result<T, String>, ObjectError>;

impl Controller {
    /// What the provider is made of beside the object; nothing where none is asked for.
    pub(in crate::operators::sip::cluster::infra) async fn auth_given(
        &self,
        object: &SipCluster,
    ) -> Found<Option<AuthGiven>> {
        let Some(auth) = object.spec.services.auth.first() else { return Ok(Ok(None)) };
        let Some(host) = auth.host.clone().or_else(|| self.settings.address.map(|address| address.to_string())) else {
            let why = "spec.services.auth[0].host is missing, and nobody has told this operator its node's address; hint: name \
                       the address at which servers reach the nodes' ports";
            return Ok(Err(why.to_owned()));
        };
        let host = spelled(host);
        let hashes = match self.hashes(object, auth).await? {
            Ok(hashes) => hashes,
            Err(why) => return Ok(Err(why)),
        };
        let upstream = match self.upstream(object, auth).await? {
            Ok(upstream) => upstream,
            Err(why) => return Ok(Err(why)),
        };
        let material = self.material(object, auth, &names(object, &host)).await?;
        Ok(material.map(|material| Some(AuthGiven { host, hashes, upstream, material })))
    }

    /// Each user's hash.
    async fn hashes(&self, object: &SipCluster, auth: &Auth) -> Found<BTreeMap<String, String>> {
        let Some(name) = auth.password_hashes.as_deref().filter(|_| !auth.users.is_empty()) else {
            return Ok(Ok(BTreeMap::new()));
        };
        let (namespace, _) = object.key();
        let told = format!("Secret `{namespace}/{name}`");
        let Some(secret) = self.base.objects.secret(&namespace, name).await? else {
            return Ok(Err(format!("{told}, which `auth[0].passwordHashes` names, is not there")));
        };
        let one = |user: &String| {
            let Some(text) = text_of(&secret, user) else {
                return Err(format!("{told} has no key `{user}`, expected the hash of this user's password"));
            };
            let read = match Program::of(auth) {
                Program::Glewlwyd => hashes::for_glewlwyd(&text),
                Program::Dex => hashes::for_dex(&text),
            };
            Ok((user.clone(), read.map_err(|why| format!("{told}: `{user}` {why}"))?))
        };
        Ok(auth.users.iter().map(|user| one(&user.name)).collect())
    }

    /// Who the provider is at the upstream.
    async fn upstream(&self, object: &SipCluster, auth: &Auth) -> Found<Option<Bound>> {
        let Some((at, name)) = auth.upstream.as_ref().and_then(Upstream::secret) else { return Ok(Ok(None)) };
        let (namespace, _) = object.key();
        let told = format!("Secret `{namespace}/{name}`, which `auth[0].upstream.{at}` names,");
        let Some(secret) = self.base.objects.secret(&namespace, name).await? else {
            return Ok(Err(format!("{told} is not there")));
        };
        let text = |key: &str| text_of(&secret, key).ok_or_else(|| format!("{told} has no `{key}`"));
        let is_directory = auth.upstream.as_ref().is_some_and(|upstream| upstream.ldap.is_some());
        let found = || {
            let (name, secret) = if is_directory { ("dn", "password") } else { ("clientID", "clientSecret") };
            let authority = is_directory.then(|| text("ca.crt")).transpose()?;
            Ok(Some(Bound { name: text(name)?, secret: text(secret)?, authority }))
        };
        Ok(found())
    }

    /// Its certificate and keys: those that it has, where they are good.
    async fn material(&self, object: &SipCluster, auth: &Auth, names: &[String]) -> Found<Material> {
        let (namespace, _) = object.key();
        let authority = match &auth.ca_secret {
            Some(name) => {
                let told = format!("Secret `{namespace}/{name}`");
                let Some(secret) = self.base.objects.secret(&namespace, name).await? else {
                    return Ok(Err(format!("{told}, which `auth[0].caSecret` names, is not there")));
                };
                Authority::of(&secret, false).map_err(|why| format!("{told}: {why}"))
            }
            None => match self.base.objects.secret(&namespace, &authority_name(object)).await? {
                Some(secret) => Authority::of(&secret, true)
                    .map_err(|why| format!("Secret `{namespace}/{}`: {why}; hint: delete it", authority_name(object))),
                None => Authority::new(&format!("{} of {namespace}", Infra::Auth.name(object)))
                    .map_err(|error| error.to_string()),
            },
        };
        let authority = match authority {
            Ok(authority) => authority,
            Err(why) => return Ok(Err(why)),
        };
        let kept = self.base.objects.secret(&namespace, &Infra::Auth.name(object)).await?;
        let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
        Ok(Material::make(&authority, kept.as_ref(), names, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_spelling() {
        assert_eq!(spelled("2001:DB8:0:0::1".to_owned()), "2001:db8::1");
        assert_eq!(spelled("login.example.org".to_owned()), "login.example.org");
    }
}
