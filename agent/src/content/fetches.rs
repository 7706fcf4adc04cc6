//! Who fetched what last: one entry for each client, so that a server that boots is seen doing so.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use agent_api::host_story::HttpSign;
use agent_api::metal3::Time;
use jiff::Timestamp;

use crate::http::Sent;

/// Clients that are remembered; beyond them, whoever asked longest ago is forgotten.
const REMEMBERED: usize = 4096;
/// Characters of a path that are kept: no path of the content is longer.
const PATH: usize = 256;

/// The last fetch of each client. Clones are the same table.
#[derive(Clone, Debug, Default)]
pub struct Fetches(Arc<Mutex<HashMap<IpAddr, HttpSign>>>);

impl Fetches {
    /// A client asks for a path.
    pub fn began(&self, client: IpAddr, path: &str, now: Timestamp) {
        let (client, path) = (client.to_canonical(), kept(path).to_owned());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED && !all.contains_key(&client) {
            let oldest = all.iter().min_by_key(|(_, fetch)| fetch.at).map(|(client, _)| *client);
            oldest.map(|oldest| all.remove(&oldest));
        }
        let fetch = HttpSign { client, path, at: Time(now), ended: None, status: None, bytes: None, cut: false };
        all.insert(client, fetch);
    }

    /// An answer was sent. When a client fetches several files at a time, the one that began last counts.
    pub fn ended(&self, client: IpAddr, path: &str, sent: &Sent, now: Timestamp) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fetch = all.get_mut(&client.to_canonical());
        if let Some(fetch) = fetch.filter(|fetch| fetch.path == kept(path)) {
            fetch.ended = Some(Time(now));
            fetch.status = Some(sent.status);
            fetch.bytes = Some(sent.bytes);
            fetch.cut = sent.cut;
        }
    }

    /// All of them, by address.
    pub fn all(&self) -> Vec<HttpSign> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<HttpSign> = all.values().cloned().collect();
        all.sort_by_key(|fetch| fetch.client);
        all
    }
}

fn kept(path: &str) -> &str {
    if path.len() <= PATH {
        return path;
    }
    path.char_indices().nth(PATH).map_or(path, |(end, _)| &path[..end])
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use jiff::Timestamp;

    use super::{Fetches, PATH, REMEMBERED};
    use crate::http::Sent;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
    }

    fn client(number: u16) -> IpAddr {
        let [high, low] = number.to_be_bytes();
        Ipv4Addr::new(172, 22, high, low).into()
    }

    #[test]
    fn the_last_fetch_of_a_client_counts_however_it_reached_the_box() {
        let fetches = Fetches::default();
        let IpAddr::V4(v4) = client(7) else { panic!("an IPv4 address") };
        fetches.began(client(7), "/a", at(0));
        fetches.began(v4.to_ipv6_mapped().into(), "/b", at(1));
        // What began before ends after.
        fetches.ended(client(7), "/a", &Sent { status: 200, bytes: 1, cut: false }, at(2));
        let open = fetches.all();
        assert_eq!((open.len(), &*open[0].path, open[0].ended), (1, "/b", None));
        fetches.ended(client(7), "/b", &Sent { status: 206, bytes: 9, cut: true }, at(3));
        let ended = fetches.all()[0].clone();
        assert_eq!((ended.status, ended.bytes, ended.cut), (Some(206), Some(9), true));
        assert_eq!((ended.at.0, ended.ended.map(|ended| ended.0)), (at(1), Some(at(3))));
    }

    #[test]
    fn a_flood_of_clients_or_long_paths_takes_no_memory() {
        let fetches = Fetches::default();
        for number in 0..=REMEMBERED {
            let number = u16::try_from(number).expect("few");
            fetches.began(client(number), &"/ü".repeat(PATH), at(number.into()));
        }
        let all = fetches.all();
        assert_eq!(all.len(), REMEMBERED);
        assert!(all.iter().all(|fetch| fetch.client != client(0)), "the oldest is forgotten");
        assert_eq!(all[0].path.chars().count(), PATH);
    }
}
