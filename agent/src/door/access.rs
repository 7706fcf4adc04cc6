//! Who may come in. One bearer token, known only by its SHA-256: Site brings it, or the first one who reads the
//! claim code off the box's own screen sets it.
//!
//! ```text
//! Unknown --set_site--+-- tokenSha256 --------> Token (Site's)
//! (503)               +-- claimed earlier ----> Token (claimed)
//!                     +-- ssh keys only ------> Closed
//!                     +-- nothing ------------> Unclaimed(code) --claim--> Token (claimed)
//! ```

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_api::rest::{Claim, Claimed};
use agent_api::site::check::{is_public_key, wrong_token_hash};
use agent_api::site::{Access, Site};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::host::files;
use crate::listen::{KnownPeers, network_of};

/// Letters of a claim code, 5 bits each: no I, L, O, U, which people misread.
const LETTERS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Letters in a claim code: 50 bits.
const CODE_LENGTH: usize = 10;
/// Wrong claims against one code, from anywhere, before another one is made.
const TRIES_PER_CODE: u32 = 50;
/// Wrong tokens of one peer in a minute.
const WRONG_TOKENS: Limit = Limit { most: 10, within: Duration::from_secs(60) };
/// Wrong claims of one peer in ten minutes.
const WRONG_CLAIMS: Limit = Limit { most: 5, within: Duration::from_secs(600) };
/// Peers that are remembered.
const MOST_PEERS: usize = 1024;

/// What a request with (or without) a token gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Come in.
    Allowed,
    /// No token, or a wrong one.
    Denied,
    /// There is no token yet; the box can be claimed.
    Unclaimed,
    /// Site has not been read yet.
    NotYet,
    /// Too many wrong tries; again in so many seconds.
    TooMany(u64),
}

/// Why a claim is refused.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Somebody has access already.
    #[error("this box cannot be claimed: it has its access already, or has not read its Site yet")]
    NotClaimable,
    /// The code is another one.
    #[error("the claim code is wrong")]
    WrongCode,
    /// Not 64 hex digits, or those of no token.
    #[error("`tokenSha256`: {0}, expected the SHA-256 of a token in 64 lower-case hex digits")]
    NoHash(&'static str),
    /// Too many wrong tries; again in so many seconds.
    #[error("too many wrong claim codes")]
    TooMany(u64),
    /// The hash could not be kept.
    #[error("keeping the token's hash")]
    Keep(#[from] io::Error),
}

type Hash = [u8; 32];

enum Held {
    Unknown,
    Token(Hash),
    Unclaimed { code: String, tries: u32 },
    Closed,
}

struct State {
    held: Held,
    tokens: Limiter,
    claims: Limiter,
}

/// Decides about every request.
pub struct Gate {
    state: Mutex<State>,
    code: watch::Sender<Option<String>>,
    claimed: PathBuf,
    known: Arc<KnownPeers>,
}

impl Gate {
    /// `dir` is where a claimed token's hash is kept (`/var/lib/foothold/access`). Until
    /// [`Gate::set_site`] is called nobody comes in.
    pub fn new(dir: &Path) -> Self {
        let state =
            State { held: Held::Unknown, tokens: Limiter::new(WRONG_TOKENS), claims: Limiter::new(WRONG_CLAIMS) };
        let claimed = dir.join("token.sha256");
        Self { state: Mutex::new(state), code: watch::Sender::new(None), claimed, known: Arc::default() }
    }

    /// Networks from which a right token came.
    pub fn known(&self) -> Arc<KnownPeers> {
        Arc::clone(&self.known)
    }

    /// Tells what Site says about access; may be called again when Site changes.
    pub fn set_site(&self, access: &Access) {
        let kept = || fs_err::read_to_string(&self.claimed).ok().and_then(|text| hash_of_hex(text.trim()));
        let mut state = self.lock();
        state.held = match access.token_sha256.as_deref().and_then(hash_of_hex).or_else(kept) {
            Some(hash) => Held::Token(hash),
            None if access.ssh_authorized_keys.iter().any(|key| is_public_key(key)) => Held::Closed,
            None if matches!(state.held, Held::Unclaimed { .. }) => return,
            None => Held::Unclaimed { code: new_code(), tries: 0 },
        };
        self.show(&state);
    }

    /// The code to show on the physical console, while there is one.
    pub fn claim_code(&self) -> watch::Receiver<Option<String>> {
        self.code.subscribe()
    }

    /// Judges the bearer token of a request. A right one is always let in: others behind the same address may be guessing.
    pub fn check(&self, peer: IpAddr, token: Option<&str>) -> Verdict {
        let now = Instant::now();
        let mut state = self.lock();
        let right = match &state.held {
            Held::Unknown => return Verdict::NotYet,
            Held::Unclaimed { .. } => return Verdict::Unclaimed,
            Held::Closed => false,
            Held::Token(hash) => token.is_some_and(|token| !token.is_empty() && same(&sha256(token.as_bytes()), hash)),
        };
        if right {
            self.known.remember(peer);
            return Verdict::Allowed;
        }
        if let Some(secs) = state.tokens.refuses(peer, now) {
            return Verdict::TooMany(secs);
        }
        // Asking without a token is how clients find out that they need one: no guess was made.
        if token.is_some() {
            state.tokens.count(peer, now);
        }
        Verdict::Denied
    }

    /// Sets the token, if the code is right.
    pub fn claim(&self, peer: IpAddr, claim: &Claim) -> Result<Claimed, ClaimError> {
        let now = Instant::now();
        let mut state = self.lock();
        let Held::Unclaimed { code, tries } = &mut state.held else { return Err(ClaimError::NotClaimable) };
        let right = same(&sha256(normal(&claim.code).as_bytes()), &sha256(normal(code).as_bytes()));
        *tries += u32::from(!right);
        let worn_out = *tries >= TRIES_PER_CODE;
        if let Some(secs) = state.claims.refuses(peer, now) {
            return Err(ClaimError::TooMany(secs));
        }
        if !right {
            state.claims.count(peer, now);
            if worn_out {
                state.held = Held::Unclaimed { code: new_code(), tries: 0 };
                self.show(&state);
            }
            return Err(ClaimError::WrongCode);
        }
        let (token, hash) = if let Some(hex) = &claim.token_sha256 {
            let wrong = || ClaimError::NoHash(wrong_token_hash(hex).unwrap_or("this is not a SHA-256"));
            (None, hash_of_hex(hex).ok_or_else(wrong)?)
        } else {
            let token = new_token();
            let hash = sha256(token.as_bytes());
            (Some(token), hash)
        };
        files::write_durably(&self.claimed, format!("{}\n", hex::encode(hash)).as_bytes(), files::SECRET)?;
        state.held = Held::Token(hash);
        self.show(&state);
        Ok(Claimed { token })
    }

    fn show(&self, state: &State) {
        let code = match &state.held {
            Held::Unclaimed { code, .. } => Some(code.clone()),
            Held::Unknown | Held::Token(_) | Held::Closed => None,
        };
        self.code.send_if_modified(|shown| {
            let changed = *shown != code;
            *shown = code;
            changed
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment, so the state is valid even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the gate what Site says about access, now and when it changes, until told to stop.
pub async fn follow_site(
    gate: Arc<Gate>,
    mut site: watch::Receiver<Option<Arc<Site>>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let follow = async {
        loop {
            if let Some(known) = site.borrow_and_update().clone() {
                gate.set_site(&known.access);
            }
            if site.changed().await.is_err() {
                return;
            }
        }
    };
    stop.run_until_cancelled(follow).await;
    Ok(())
}

fn sha256(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// Compares in constant time: how long it takes says nothing about where the difference is.
fn same(a: &Hash, b: &Hash) -> bool {
    let difference = a.iter().zip(b).fold(0, |sum, (a, b)| std::hint::black_box(sum | (a ^ b)));
    std::hint::black_box(difference) == 0
}

/// The hash of a token, if it can be one.
fn hash_of_hex(text: &str) -> Option<Hash> {
    wrong_token_hash(text).is_none().then(|| hex::decode(text).ok()?.try_into().ok()).flatten()
}

/// What people may write differently: case, dashes, spaces, O for 0, I and L for 1.
fn normal(code: &str) -> String {
    let letters = code.chars().filter(char::is_ascii_alphanumeric).take(2 * CODE_LENGTH);
    let letters = letters.map(|letter| match letter.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        other => other,
    });
    letters.collect()
}

fn new_code() -> String {
    let random: [u8; CODE_LENGTH] = rand::random();
    let letters: String = random.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect();
    format!("{}-{}", &letters[..CODE_LENGTH / 2], &letters[CODE_LENGTH / 2..])
}

fn new_token() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    most: u32,
    within: Duration,
}

/// Counts wrong tries per peer in windows of fixed length.
struct Limiter {
    limit: Limit,
    peers: HashMap<IpAddr, (u32, Instant)>,
}

impl Limiter {
    fn new(limit: Limit) -> Self {
        Self { limit, peers: HashMap::new() }
    }

    /// Seconds until the peer may try again, if it has used its tries up.
    fn refuses(&self, peer: IpAddr, now: Instant) -> Option<u64> {
        let (count, since) = self.peers.get(&network_of(peer))?;
        let left = self.limit.within.checked_sub(now.duration_since(*since))?;
        (*count >= self.limit.most).then_some(left.as_secs() + 1)
    }

    fn count(&mut self, peer: IpAddr, now: Instant) {
        let within = self.limit.within;
        if self.peers.len() >= MOST_PEERS {
            self.peers.retain(|_, (_, since)| now.duration_since(*since) < within);
        }
        if self.peers.len() >= MOST_PEERS {
            // Somebody has very many addresses: forget the one that has waited longest.
            let oldest = self.peers.iter().min_by_key(|(_, (_, since))| *since).map(|(peer, _)| *peer);
            oldest.map(|peer| self.peers.remove(&peer));
        }
        let entry = self.peers.entry(network_of(peer)).or_insert((0, now));
        if now.duration_since(entry.1) >= within {
            *entry = (0, now);
        }
        entry.0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::{Duration, Instant};

    use agent_api::rest::Claim;
    use agent_api::site::Access;

    use super::{ClaimError, Gate, Limit, Limiter, Verdict, normal, sha256};

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn code_of(gate: &Gate) -> Option<String> {
        gate.claim_code().borrow().clone()
    }

    fn claim(code: &str, token: Option<&str>) -> Claim {
        let token_sha256 = token.map(|token| hex::encode(sha256(token.as_bytes())));
        Claim { code: code.to_owned(), token_sha256 }
    }

    #[test]
    fn nobody_comes_in_before_site_is_known() {
        let dir = tempfile::tempdir().expect("a folder");
        let gate = Gate::new(dir.path());
        assert_eq!(gate.check(PEER, Some("secret")), Verdict::NotYet);
        assert!(matches!(gate.claim(PEER, &claim("00000-00000", None)), Err(ClaimError::NotClaimable)));
    }

    #[test]
    fn sites_token_is_the_only_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let gate = Gate::new(dir.path());
        let token_sha256 = Some(hex::encode(sha256(b"secret")));
        gate.set_site(&Access { token_sha256, ..Access::default() });
        assert_eq!(gate.check(PEER, Some("secret")), Verdict::Allowed);
        assert_eq!(gate.check(PEER, Some("Secret")), Verdict::Denied);
        assert_eq!(gate.check(PEER, Some("")), Verdict::Denied);
        assert_eq!(gate.check(PEER, None), Verdict::Denied);
        assert_eq!(code_of(&gate), None);
    }

    #[test]
    fn ssh_keys_are_access_too_and_leave_nothing_to_claim() {
        let dir = tempfile::tempdir().expect("a folder");
        let gate = Gate::new(dir.path());
        let with = |key: &str| Access { ssh_authorized_keys: vec![key.to_owned()], ..Access::default() };
        gate.set_site(&with("ssh-ed25519 AAAA... me@example.org"));
        assert!(code_of(&gate).is_some(), "nobody has such a key: the box would be closed for ever");
        gate.set_site(&with("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUCJZp6/C8oVQXGrbUIeZzV27d5zIR93oDe09dTTGAT"));
        assert_eq!(gate.check(PEER, Some("secret")), Verdict::Denied);
        assert_eq!(code_of(&gate), None);
    }

    #[test]
    fn the_hash_of_no_token_is_no_access_and_is_not_taken_in_a_claim() {
        let dir = tempfile::tempdir().expect("a folder");
        for hash in [hex::encode(sha256(b"")), "0".repeat(64)] {
            let gate = Gate::new(dir.path());
            gate.set_site(&Access { token_sha256: Some(hash.clone()), ..Access::default() });
            assert_eq!(gate.check(PEER, Some("")), Verdict::Unclaimed);
            let code = code_of(&gate).expect("a code");
            let claimed = gate.claim(PEER, &Claim { code: code.clone(), token_sha256: Some(hash) });
            let why = claimed.expect_err("refused").to_string();
            assert!(why.contains("expected the SHA-256 of a token"), "{why}");
            assert_eq!(code_of(&gate), Some(code), "it can be tried again");
        }
        fs_err::write(dir.path().join("token.sha256"), hex::encode(sha256(b""))).expect("one of an earlier release");
        let gate = Gate::new(dir.path());
        gate.set_site(&Access::default());
        assert!(code_of(&gate).is_some());
        assert_eq!(
            gate.claim(PEER, &claim(&code_of(&gate).expect("a code"), Some("mine"))).expect("claimed").token,
            None
        );
        assert_eq!((gate.check(PEER, Some("mine")), gate.check(PEER, Some(""))), (Verdict::Allowed, Verdict::Denied));
    }

    #[test]
    fn the_code_on_the_console_sets_the_token_once_and_for_the_next_boots() {
        let dir = tempfile::tempdir().expect("a folder");
        let gate = Gate::new(dir.path());
        gate.set_site(&Access::default());
        assert_eq!(gate.check(PEER, Some("any")), Verdict::Unclaimed);
        let code = code_of(&gate).expect("a code");
        let sloppy = code.to_lowercase().replace('-', " ").replace('0', "o").replace('1', "l");
        let token = gate.claim(PEER, &claim(&sloppy, None)).expect("claimed").token.expect("a token");
        assert_eq!(gate.check(PEER, Some(&token)), Verdict::Allowed);
        assert_eq!(code_of(&gate), None);
        assert!(matches!(gate.claim(PEER, &claim(&code, None)), Err(ClaimError::NotClaimable)));
        let kept = fs_err::read_to_string(dir.path().join("token.sha256")).expect("the hash");
        assert_eq!(kept.trim(), hex::encode(sha256(token.as_bytes())));
        let rebooted = Gate::new(dir.path());
        rebooted.set_site(&Access::default());
        assert_eq!(rebooted.check(PEER, Some(&token)), Verdict::Allowed);
    }

    #[test]
    fn the_caller_may_bring_the_hash_of_an_own_token() {
        let dir = tempfile::tempdir().expect("a folder");
        let gate = Gate::new(dir.path());
        gate.set_site(&Access::default());
        let code = code_of(&gate).expect("a code");
        assert_eq!(gate.claim(PEER, &claim(&code, Some("mine"))).expect("claimed").token, None);
        assert_eq!(gate.check(PEER, Some("mine")), Verdict::Allowed);
    }

    #[test]
    fn wrong_codes_are_limited_per_peer_and_wear_the_code_out() {
        let dir = tempfile::tempdir().expect("a folder");
        let gate = Gate::new(dir.path());
        gate.set_site(&Access::default());
        let code = code_of(&gate).expect("a code");
        for _ in 0..5 {
            assert!(matches!(gate.claim(PEER, &claim("wrong", None)), Err(ClaimError::WrongCode)));
        }
        assert!(matches!(gate.claim(PEER, &claim(&code, None)), Err(ClaimError::TooMany(_))));
        for peer in 0..45_u8 {
            let peer = IpAddr::V4(Ipv4Addr::new(192, 0, 2, peer));
            assert!(matches!(gate.claim(peer, &claim("wrong", None)), Err(ClaimError::WrongCode)));
        }
        let next = code_of(&gate).expect("another code");
        assert_ne!(normal(&code), normal(&next));
    }

    #[test]
    fn ten_wrong_tokens_close_the_door_to_guesses_of_this_peer_and_never_to_the_right_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let gate = Gate::new(dir.path());
        gate.set_site(&Access { token_sha256: Some(hex::encode(sha256(b"secret"))), ..Access::default() });
        for _ in 0..10 {
            assert_eq!(gate.check(PEER, Some("guess")), Verdict::Denied);
        }
        assert!(matches!(gate.check(PEER, Some("guess")), Verdict::TooMany(1..=60)));
        assert!(matches!(gate.check(PEER, None), Verdict::TooMany(1..=60)));
        assert_eq!(gate.check(PEER, Some("secret")), Verdict::Allowed);
        let other = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(gate.check(other, Some("guess")), Verdict::Denied);
        assert_eq!(gate.check(other, Some("secret")), Verdict::Allowed);
    }

    #[test]
    fn tries_are_forgotten_after_their_time_and_peers_beyond_the_most() {
        let limit = Limit { most: 1, within: Duration::from_secs(60) };
        let (mut limiter, start) = (Limiter::new(limit), Instant::now());
        limiter.count(PEER, start);
        assert_eq!(limiter.refuses(PEER, start), Some(61));
        assert_eq!(limiter.refuses(PEER, start + Duration::from_secs(61)), None);
        for n in 0..5000_u32 {
            limiter.count(IpAddr::V4(Ipv4Addr::from_bits(n)), start);
        }
        assert!(limiter.peers.len() <= 1024);
    }
}
